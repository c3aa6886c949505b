"""``POST /v3/users/{user_id}/password``. Source: Identity API v3 reference, "Change password for user"."""

from moorage.wire.body import Schema

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
