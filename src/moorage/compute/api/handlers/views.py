"""Shapes that several handlers share: links, times, flags, errors, and pages of lists."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from moorage.compute.api.schemas.queries import KnownQuery
from moorage.compute.service import ComputeService
from moorage.core import parsing
from moorage.core.errors import Forbidden, Invalid
from moorage.core.json import Json
from moorage.wire.errors import Problem
from moorage.wire.http import Request, Response

if TYPE_CHECKING:
    import jsonschema

#: Maximum and default number of rows in a page.
MAX_LIMIT = 1000

#: The largest number that a column holds, and the maximum length of a project's id.
MAX_AMOUNT = 2**31 - 1
MAX_PROJECT_LENGTH = 255

_ERROR_NAMES = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    429: "overLimit",
    415: "badMediaType",
    501: "notImplemented",
}

#: From the beginning of a second to its last moment.
_SECOND = timedelta(microseconds=999_999)

ComputeRequest = Request[ComputeService]


def error_response(problem: Problem) -> Response:
    """``{"itemNotFound": {"code": 404, "message": ...}}``."""
    name = _ERROR_NAMES.get(problem.status, "computeFault")
    return Response(problem.status, {name: {"code": problem.status, "message": problem.message}})


def word_schema_error(failure: "jsonschema.ValidationError") -> str:
    """As in Nova, names only the last step of the path."""
    if not failure.path:
        return str(failure.message)
    return f"Invalid input for field/attribute {failure.path[-1]}. Value: {failure.instance}. {failure.message}"


def resource_links(request: ComputeRequest, kind: str, key: str) -> list[dict[str, str]]:
    return [
        {"rel": "self", "href": f"{request.base_url}/v2.1/{kind}/{key}"},
        {"rel": "bookmark", "href": f"{request.base_url}/{kind}/{key}"},
    ]


def next_link(request: ComputeRequest, marker: Json) -> list[dict[str, str]]:
    pairs = [(key, value) for key, value in request.query.pairs if key != "marker"]
    return [{"rel": "next", "href": f"{request.base_url}{request.path}?{urlencode([*pairs, ('marker', marker)])}"}]


def format_seconds(moment: datetime) -> str:
    """``2026-11-20T16:54:59Z``."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def format_microseconds(moment: datetime | None) -> str | None:
    """``2026-11-20T16:54:59.784509``: Nova's other format, without a time zone."""
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.%f")


def parse_flag(value: object) -> bool:
    """A boolean, as clients send it: ``True``, ``"true"``, ``"1"``, ``"yes"``, ``"on"`` and so on."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "t", "1", "yes", "y", "on"):
        return True
    if text in ("false", "f", "0", "no", "n", "off", ""):
        return False
    raise Invalid(f"Invalid input for boolean: {value}")


def parse_moment(text: str, name: str) -> datetime:
    try:
        return parsing.parse_time(text)
    except ValueError as refusal:
        raise Invalid(f"Invalid filter field: {name}. {text} is not a time such as 2026-11-20T16:54:59Z") from refusal


def parse_whole_number(text: str, refusal: str) -> int:
    """A whole number in a query; `refusal` is the message for anything else."""
    try:
        return parsing.parse_whole_number(text)
    except ValueError as error_of_format:
        raise Invalid(refusal) from error_of_format


def parse_amount(value: float | str, name: str, *, most: int = MAX_AMOUNT) -> int:
    """Parses a number or a string of digits. Checks the bound `most`, because schemas check it only for numbers."""
    try:
        number = int(value)
    except (ValueError, OverflowError) as error_of_format:
        raise Invalid(f"Invalid input for field/attribute {name}: it is not a whole number.") from error_of_format
    if abs(number) > most:
        raise Invalid(
            f"Invalid input for field/attribute {name}. Value: {number:.6g}. It exceeds the maximum of {most}."
        )
    return number


def check_project_id(text: str) -> str:
    """Checks the length of a project's id."""
    if len(text) > MAX_PROJECT_LENGTH:
        raise Invalid(f"Invalid project id: it has more than {MAX_PROJECT_LENGTH} characters.")
    return text


def changes_period(
    request: ComputeRequest, *, before_since: tuple[int, int]
) -> tuple[datetime | None, datetime | None]:
    """The first and the last moment of ``changes-since`` and ``changes-before``, both included; the latter is read
    from microversion `before_since` on.

    A time without a fraction of a second includes the whole second, because clients send back the times that they are
    shown, which are in seconds. In Nova, a database whose times are in seconds has the same effect.
    """
    first = request.query.first
    since, before = first("changes-since"), first("changes-before") if request.version >= before_since else None
    after = None if since is None else parse_moment(since, "changes-since")
    until = None if before is None else parse_moment(before, "changes-before")
    if after is not None and until is not None and after > until:
        raise Invalid("The value of changes-since must be less than or equal to changes-before.")
    if until is not None and not until.microsecond:
        until += _SECOND
    return after, until


def page_size(request: ComputeRequest) -> int:
    text = request.query.first("limit")
    if text is None:
        return MAX_LIMIT
    return min(parse_whole_number(text, "limit must be a whole number, 0 or more"), MAX_LIMIT)


def page_of_rows(
    rows: Sequence[dict[str, Json]], request: ComputeRequest, key: str = "id"
) -> tuple[list[dict[str, Json]], bool]:
    """The page of `rows` selected by ``marker`` and ``limit``, and whether more rows follow."""
    start = 0
    if (marker := request.query.first("marker")) is not None:
        positions = [at for at, row in enumerate(rows) if str(row[key]) == marker]
        if not positions:
            raise Invalid(f"marker [{marker}] not found")
        start = positions[0] + 1
    size = page_size(request)
    return list(rows[start : start + size]), len(rows) > start + size


def check_query(known: KnownQuery) -> Callable[..., None]:
    """A check before the handler: refuses unknown query parameters from the microversion on in which Nova does."""

    def check(request: ComputeRequest, **_path: str) -> None:
        if request.version >= (2, known.strict_since) and (unknown := sorted(request.query.names() - known.names)):
            were = "were" if len(unknown) > 1 else "was"
            names = ", ".join(repr(name) for name in unknown)
            raise Invalid(f"Additional properties are not allowed ({names} {were} unexpected)")

    return check


def require_rule(request: ComputeRequest, rule: str) -> None:
    """For rules that depend on the content of the request."""
    if not request.allowed(rule):
        raise Forbidden(f"Policy doesn't allow {rule} to be performed.", rule=rule)
