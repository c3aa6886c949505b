"""Parses numbers and times in texts from outside. Raises `ValueError`, and nothing else, for invalid text.

Not here: the message for the caller, which each API words as upstream does.
"""

from datetime import UTC, datetime, tzinfo

#: Bounds of all times that are kept. They leave a year on each side for calculations.
EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 1, 1, tzinfo=UTC)


def parse_whole_number(text: str) -> int:
    """A number written with the digits 0 to 9 only, without a sign, of any length that Python accepts."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError("not a whole number of digits 0 to 9")
    return int(text)


def parse_time(text: str, *, zone: tzinfo | None = UTC) -> datetime:
    """An ISO 8601 time in UTC, clamped to `EARLIEST` and `LATEST`.

    `zone` applies to a text without a time zone; with None, such a text is rejected. A blank counts as ``+``, since a
    plus that was not escaped in a query arrives as a blank.
    """
    found = datetime.fromisoformat(text.replace(" ", "+", 1) if "T" in text else text)
    if found.tzinfo is None:
        if zone is None:
            raise ValueError("the time has no time zone")
        found = found.replace(tzinfo=zone)
    try:
        return min(max(found.astimezone(UTC), EARLIEST), LATEST)
    except OverflowError as error:
        raise ValueError("the time in UTC is before the year 1 or after the year 9999") from error
