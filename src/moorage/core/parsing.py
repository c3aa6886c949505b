"""Numbers and times in texts from outside. What cannot be read or is beyond every bound is a `ValueError`, and nothing else.

Not here: what a caller is told about it, which each API words as its peer does.
"""

from datetime import UTC, datetime, tzinfo

#: Nothing that anybody keeps is before the one or after the other, and a year on each side is left to reckon with.
EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 1, 1, tzinfo=UTC)


def parse_whole_number(text: str) -> int:
    """The digits 0 to 9 without a sign; as many as Python reads."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError("these are not digits alone")
    return int(text)


def parse_time(text: str, *, zone: tzinfo | None = UTC) -> datetime:
    """A time of ISO 8601 in UTC, one before `EARLIEST` or after `LATEST` as if it were that.

    `zone` is that of a text that names none; with None such a text is refused. In a query a plus that was not escaped is a
    blank.
    """
    found = datetime.fromisoformat(text.replace(" ", "+", 1) if "T" in text else text)
    if found.tzinfo is None:
        if zone is None:
            raise ValueError("it names no time zone")
        found = found.replace(tzinfo=zone)
    try:
        return min(max(found.astimezone(UTC), EARLIEST), LATEST)
    except OverflowError as error:
        raise ValueError("in UTC it is before the year 1 or after the year 9999") from error
