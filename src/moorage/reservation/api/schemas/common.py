"""Dates and refusals as the Reservation API has them.

In: ``YYYY-MM-DD HH:MM`` in UTC, or ``now``. Out: ``2026-11-22T15:42:00.000000`` for the dates of leases and events
(clients parse them with ``%f`` and without a zone), a blank instead of the T for ``created_at`` and ``updated_at``.
"""

from datetime import UTC, datetime
from typing import Any

from moorage.core.errors import Invalid
from moorage.reservation.capacity.lease_update import When

_FORMAT = "%Y-%m-%d %H:%M"

#: Leaves room to add centuries to an accepted date: Python supports years up to 9999.
_END_OF_DATES = datetime(9000, 1, 1, tzinfo=UTC)

#: A date in a request, to the schemas; `decode_date` knows more of calendars.
DATE_TEXT = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}$"}


def decode_when(text: str) -> When:
    return "now" if text == "now" else decode_date(text)


def decode_date(text: str) -> datetime:
    try:
        moment = datetime.strptime(text, _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        raise Invalid(f"{text} is an invalid date. Required format: {_FORMAT}") from None
    if moment >= _END_OF_DATES:
        raise Invalid(f"{text} is too far ahead: dates lie before {_END_OF_DATES:%Y-%m-%d}")
    return moment


def encode_date(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}"


def encode_time(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M:%S.%f}"


def peer_wording(error: Any) -> str:
    """A ``jsonschema.ValidationError`` in the words of the peer, where it has words."""
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
