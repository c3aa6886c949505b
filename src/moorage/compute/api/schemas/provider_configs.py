"""The body of an order about a host's provider configuration."""

from moorage.wire.body import Schema

#: Files, and characters of one: more than any host has.
MOST_FILES, LONGEST = 50, 1 << 18

ORDER = Schema(
    {
        "type": "object",
        "properties": {
            "do": {"enum": ["show", "plan", "apply"]},
            "files": {
                "type": "object",
                "propertyNames": {"pattern": r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.yaml$"},
                "additionalProperties": {"type": "string", "maxLength": LONGEST},
                "maxProperties": MOST_FILES,
            },
        },
        "required": ["do"],
        "additionalProperties": False,
    }
)
