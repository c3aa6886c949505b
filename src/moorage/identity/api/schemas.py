"""Schemas of the request bodies of the identity routes: logins and hosts, then everything that administrators change.

Further attributes of projects, users, groups, services and endpoints are stored as they are, as in Keystone. Keystone's
``options`` are refused unless they are empty: this service would not honour them.

Source: Identity API v3 reference ("Password authentication", "Token authentication", "Authenticating with an
Application Credential", "Change password for user", and the chapters of the records); the bodies of
``/moorage/v1`` are ours.
"""

from collections.abc import Mapping

from moorage.identity import host_registry, model
from moorage.wire.body import Schema

# --- logins, hosts, invitations and passwords

_DOMAIN_REFERENCE = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
    "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
}
_BY_ID = {"required": ["id"]}
_BY_NAME = {"required": ["name", "domain"]}
#: A user or a project. A name is unique only in its domain.
_BY_ID_OR_NAME = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}, "domain": _DOMAIN_REFERENCE},
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
                                            "domain": _DOMAIN_REFERENCE,
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
                                    "domain": _DOMAIN_REFERENCE,
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


def _flat_body(**fields: object) -> Schema:
    return Schema(
        {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False},
    )


INVITE = _flat_body(expires_s={"type": "integer", "minimum": 1, "maximum": host_registry.MAX_INVITATION_S})
ENROL = _flat_body(token=_SECRET, secret_sha256=_DIGEST)
ROTATE = _flat_body(secret=_SECRET, secret_sha256=_DIGEST)
INVITE_USER = _flat_body(expires_s={"type": "integer", "minimum": 1, "maximum": model.MAX_INVITATION_S})
CHOOSE_PASSWORD = _flat_body(token=_SECRET, password={"type": "string"})
HOST_LOGIN = _flat_body(secret=_SECRET)

_BROWSER_SECRET = {"type": "string", "pattern": r"^[A-Za-z0-9_-]{32,128}$"}
_FROM_PROVIDER = {"type": "string", "minLength": 1, "maxLength": 4096}
BEGIN_SIGN_IN = _flat_body(browser_secret=_BROWSER_SECRET)
REDEEM_CODE = Schema(
    {
        "type": "object",
        "properties": {
            "browser_secret": _BROWSER_SECRET,
            "state": _FROM_PROVIDER,
            "code": _FROM_PROVIDER,
            "iss": _FROM_PROVIDER,
        },
        "required": ["browser_secret", "state", "code"],
        "additionalProperties": False,
    }
)
REDEEM_ID_TOKEN = _flat_body(id_token={"type": "string", "minLength": 1, "maxLength": 65_536})


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


# --- accounts, roles, application credentials and the catalogue

#: PostgreSQL stores no NUL.
_NO_NUL = r"^[^\u0000]*$"
_NAME = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": _NO_NUL}
_LABEL = {"type": ["string", "null"], "maxLength": 255, "pattern": _NO_NUL}
_ID = {"type": "string", "minLength": 1, "maxLength": 64, "pattern": _NO_NUL}
_OPTIONAL_ID = {"type": ["string", "null"], "maxLength": 64, "pattern": _NO_NUL}
_TEXT = {"type": ["string", "null"], "maxLength": 16_384}
_FLAG = {"type": "boolean"}
_OPTIONS = {"type": "object", "maxProperties": 0}
_REGION_ID = {"type": ["string", "null"], "maxLength": 255, "pattern": _NO_NUL}
_URL = {"type": "string", "minLength": 1, "maxLength": 4096}

_DOMAIN = {"name": _NAME, "description": _TEXT, "enabled": _FLAG, "options": _OPTIONS}
_PROJECT = {
    "name": _NAME,
    "description": _TEXT,
    "enabled": _FLAG,
    "domain_id": _OPTIONAL_ID,
    "parent_id": _OPTIONAL_ID,
    "is_domain": _FLAG,
    "tags": {"type": "array", "maxItems": 80, "uniqueItems": True, "items": _NAME},
    "options": _OPTIONS,
}
_USER = {
    "name": _NAME,
    "password": {"type": ["string", "null"]},
    "enabled": _FLAG,
    "domain_id": _OPTIONAL_ID,
    "default_project_id": _OPTIONAL_ID,
    "options": _OPTIONS,
}
_GROUP = {"name": _NAME, "description": _TEXT, "domain_id": _OPTIONAL_ID}
_ROLE = {"name": _NAME, "description": _TEXT, "domain_id": _OPTIONAL_ID, "options": _OPTIONS}
_REGION = {"id": _REGION_ID, "description": _TEXT, "parent_region_id": _REGION_ID}
_SERVICE = {"type": _NAME, "name": _LABEL, "enabled": _FLAG}
_ENDPOINT = {
    "service_id": _ID,
    "interface": {"type": "string", "maxLength": 8},
    "url": _URL,
    "region": _REGION_ID,
    "region_id": _REGION_ID,
    "enabled": _FLAG,
}


def _body(name: str, properties: Mapping[str, object], *required: str, closed: bool = False) -> Schema:
    inner: dict[str, object] = {"type": "object", "properties": properties, "required": list(required)}
    if closed:
        inner["additionalProperties"] = False
    return Schema({"type": "object", "required": [name], "properties": {name: inner}})


CREATE_DOMAIN, UPDATE_DOMAIN = _body("domain", _DOMAIN, "name"), _body("domain", _DOMAIN)
CREATE_PROJECT, UPDATE_PROJECT = _body("project", _PROJECT, "name"), _body("project", _PROJECT)
CREATE_USER, UPDATE_USER = _body("user", _USER, "name"), _body("user", _USER)
CREATE_GROUP, UPDATE_GROUP = _body("group", _GROUP, "name"), _body("group", _GROUP)
CREATE_ROLE, UPDATE_ROLE = _body("role", _ROLE, "name"), _body("role", _ROLE)
CREATE_REGION, UPDATE_REGION = _body("region", _REGION), _body("region", _REGION)
CREATE_SERVICE, UPDATE_SERVICE = _body("service", _SERVICE, "type"), _body("service", _SERVICE)
CREATE_ENDPOINT = _body("endpoint", _ENDPOINT, "service_id", "interface", "url")
UPDATE_ENDPOINT = _body("endpoint", _ENDPOINT)
CREATE_CREDENTIAL = _body(
    "application_credential",
    {
        "name": _NAME,
        "description": _TEXT,
        "secret": {"type": ["string", "null"], "minLength": 1},
        "expires_at": {"type": ["string", "null"], "maxLength": 64},
        "unrestricted": {"type": ["boolean", "null"]},
        "project_id": _OPTIONAL_ID,
        "roles": {
            "type": ["array", "null"],
            "maxItems": 100,
            "items": {
                "type": "object",
                "properties": {"id": _ID, "name": _NAME},
                "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
            },
        },
        "access_rules": {"type": ["array", "null"]},
    },
    "name",
    closed=True,
)
