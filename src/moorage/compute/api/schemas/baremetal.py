"""The body of a migration of bare-metal servers: ``after`` is the last node of the page before."""

from moorage.wire.body import Schema

MIGRATE = Schema(
    {
        "type": "object",
        "properties": {"dry_run": {"type": "boolean"}, "after": {"type": "string", "maxLength": 255}},
        "required": ["dry_run"],
        "additionalProperties": False,
    }
)
