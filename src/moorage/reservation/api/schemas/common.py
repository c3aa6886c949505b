"""The formats of dates and of validation errors in the Reservation API.

Requests: ``YYYY-MM-DD HH:MM`` in UTC, or ``now``. Answers: ``2026-11-22T15:42:00.000000`` for the dates of leases and
events (clients parse them with ``%f`` and without a zone); ``created_at`` and ``updated_at`` have a blank instead of
the T.
"""

from datetime import UTC, datetime
from typing import Any

from moorage.core.errors import Invalid
from moorage.reservation.capacity.lease_update import When
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

_FORMAT = "%Y-%m-%d %H:%M"

#: Accepted dates lie before this one, so that sums of dates and periods stay below the year 9999, Python's last.
_END_OF_DATES = datetime(9000, 1, 1, tzinfo=UTC)

#: The schema of a date in a request. `decode_date` also refuses impossible dates, such as 30 February.
DATE_TEXT = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}$"}


#: The microversion of the peer's API, and the one that introduced our additions.
PEERS, OURS = Version(1, 0), Version(1, 1)


def tolerant(schema: Schema) -> Schema:
    """The schema without its refusal of unknown keys. The peer ignores them, and some clients send them."""
    return Schema({**schema.document, "additionalProperties": True})


def tolerant_at_first(schema: Schema) -> VersionedSchema:
    """Up to 1.0, unknown keys are ignored; from 1.1 on they are refused."""
    return VersionedSchema([(PEERS, tolerant(schema)), (OURS, schema)])


def decode_when(text: str) -> When:
    return "now" if text == "now" else decode_date(text)


def decode_date(text: str) -> datetime:
    try:
        moment = datetime.strptime(text, _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        raise Invalid(f"{text} is an invalid date. Required format: {_FORMAT}") from None
    if moment >= _END_OF_DATES:
        raise Invalid(f"{text} is too far in the future: dates must be before {_END_OF_DATES:%Y-%m-%d}")
    return moment


def encode_date(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}"


def encode_time(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M:%S.%f}"


def peer_wording(error: Any) -> str:
    """The message of a ``jsonschema.ValidationError``, in the peer's wording if it has one."""
    name = next((str(part) for part in reversed(error.absolute_path) if isinstance(part, str)), "body")
    match error.validator:
        case "required":
            return "Missing parameter " + ", ".join(key for key in error.validator_value if key not in error.instance)
        case "additionalProperties":
            known = error.schema.get("properties", {})
            return "Unknown parameter " + ", ".join(sorted(key for key in error.instance if key not in known))
        case "minimum":
            return f"{name} must be >= {error.validator_value}"
        case "maximum":
            return f"{name} must be <= {error.validator_value}"
    return f"Malformed parameter {name}: {error.message}"
