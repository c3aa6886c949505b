"""``POST /v3/auth/tokens``. Source: Identity API v3 reference, "Password authentication" and "Token authentication"."""

from moorage.wire.body import Schema

_DOMAIN = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
    "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
}
_BY_ID = {"required": ["id"]}
_BY_NAME = {"required": ["name", "domain"]}

LOGIN = Schema(
    {
        "type": "object",
        "required": ["auth"],
        "properties": {
            "auth": {
                "type": "object",
                "required": ["identity"],
                "properties": {
                    "identity": {
                        "type": "object",
                        "required": ["methods"],
                        "properties": {
                            "methods": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                            "password": {
                                "type": "object",
                                "required": ["user"],
                                "properties": {
                                    "user": {
                                        "type": "object",
                                        "required": ["password"],
                                        "properties": {
                                            "id": {"type": "string"},
                                            "name": {"type": "string"},
                                            "password": {"type": "string"},
                                            "domain": _DOMAIN,
                                        },
                                        "anyOf": [_BY_ID, _BY_NAME],
                                    }
                                },
                            },
                            "token": {
                                "type": "object",
                                "required": ["id"],
                                "properties": {"id": {"type": "string"}},
                            },
                        },
                    },
                    "scope": {
                        "anyOf": [
                            {"const": "unscoped"},
                            {
                                "type": "object",
                                "properties": {
                                    "project": {
                                        "type": "object",
                                        "properties": {
                                            "id": {"type": "string"},
                                            "name": {"type": "string"},
                                            "domain": _DOMAIN,
                                        },
                                        "anyOf": [_BY_ID, _BY_NAME],
                                    },
                                    "domain": _DOMAIN,
                                    "system": {"type": "object"},
                                    "unscoped": {"type": "object"},
                                },
                                "minProperties": 1,
                                "maxProperties": 1,
                            },
                        ]
                    },
                },
            }
        },
    }
)
