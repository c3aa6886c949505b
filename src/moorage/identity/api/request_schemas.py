"""Schemas of the request bodies of the identity routes.

Source: Identity API v3 reference ("Password authentication", "Token authentication", "Authenticating with an
Application Credential", "Change password for user"); the bodies of ``/moorage/v1`` are ours.
"""

from moorage.identity import host_registry, model
from moorage.wire.body import Schema

_DOMAIN = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
    "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
}
_BY_ID = {"required": ["id"]}
_BY_NAME = {"required": ["name", "domain"]}
#: A user or a project. A name is unique only in its domain.
_BY_ID_OR_NAME = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}, "domain": _DOMAIN},
    "anyOf": [_BY_ID, _BY_NAME],
}

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
                            "application_credential": {
                                "type": "object",
                                "required": ["secret"],
                                "properties": {
                                    "id": {"type": "string"},
                                    "name": {"type": "string"},
                                    "secret": {"type": "string"},
                                    "user": _BY_ID_OR_NAME,
                                },
                                "anyOf": [_BY_ID, {"required": ["name", "user"]}],
                            },
                        },
                    },
                    "scope": {
                        "anyOf": [
                            {"const": "unscoped"},
                            {
                                "type": "object",
                                "properties": {
                                    "project": _BY_ID_OR_NAME,
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


_SECRET = {"type": "string", "minLength": 1, "maxLength": 512}
_DIGEST = {"type": "string", "pattern": r"^[0-9a-f]{64}$"}


def _body(**fields: object) -> Schema:
    return Schema(
        {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False},
    )


INVITE = _body(expires_s={"type": "integer", "minimum": 1, "maximum": host_registry.MAX_INVITATION_S})
ENROL = _body(token=_SECRET, secret_sha256=_DIGEST)
ROTATE = _body(secret=_SECRET, secret_sha256=_DIGEST)
INVITE_USER = _body(expires_s={"type": "integer", "minimum": 1, "maximum": model.MAX_INVITATION_S})
CHOOSE_PASSWORD = _body(token=_SECRET, password={"type": "string"})
HOST_LOGIN = _body(secret=_SECRET)


CHANGE_PASSWORD = Schema(
    {
        "type": "object",
        "required": ["user"],
        "properties": {
            "user": {
                "type": "object",
                "required": ["original_password", "password"],
                "properties": {"original_password": {"type": "string"}, "password": {"type": "string"}},
                "additionalProperties": False,
            }
        },
    }
)
