"""Decodes JSON request bodies within bounds and validates them against compiled JSON schemas.

jsonschema-rs accepts a body in microseconds. Only if it rejects one does python-jsonschema validate it again: it has
the last word and gives the message, because upstream's messages are python-jsonschema's.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import orjson

from moorage.core.errors import Invalid
from moorage.wire.microversion import Version

if TYPE_CHECKING:
    import jsonschema


class Schema:
    """One JSON schema (draft 2020-12 unless ``$schema`` says otherwise), compiled at first use."""

    def __init__(
        self,
        document: Mapping[str, object],
        *,
        formats: Mapping[str, Callable[[str], bool]] | None = None,
        code: str = "moorage.schema",
    ) -> None:
        """`formats`: the service's own checks for the keyword ``format``, such as {"uuid": looks_like_uuid}; `code`:
        the error code of a rejection.
        """
        self.document: Mapping[str, Any] = document
        self._code = code
        self._formats = dict(formats or {})

    @cached_property
    def _compiled(self) -> Any:
        return jsonschema_rs.validator_for(dict(self.document), validate_formats=True, formats=self._formats)

    def validate(self, instance: Any, describe: Callable[["jsonschema.ValidationError"], str]) -> None:
        """Raises `Invalid` with the message that `describe` returns for the ``jsonschema.ValidationError``."""
        if self._compiled.is_valid(instance):
            return
        import jsonschema  # the import takes 80 ms: the first invalid request pays for it, not every start

        if (size := _size(instance)) > _MAX_PRINTED_SIZE:
            raise Invalid(describe(self._brief_error(instance, size)), code=self._code)
        validator_class = jsonschema.validators.validator_for(self.document, default=jsonschema.Draft202012Validator)
        checker = jsonschema.FormatChecker()
        for name, check in self._formats.items():
            register: Any = checker.checks(name)
            register(_text_check(check))
        validator = validator_class(self.document, format_checker=checker)
        error = jsonschema.exceptions.best_match(validator.iter_errors(instance))
        if error is not None:
            raise Invalid(describe(error), code=self._code)

    def _brief_error(self, instance: object, size: int) -> "jsonschema.ValidationError":
        """A ``jsonschema.ValidationError`` without the instance.

        Upstream's message prints the whole instance: for 10 MB this took 16 s and made a response of 30 MB. Finding the
        fault with python-jsonschema took another 4 s and 400 MiB.
        """
        import jsonschema

        if size > _MAX_SEARCHED_SIZE:
            return jsonschema.ValidationError(
                "does not match the schema; the document is too large to locate the fault", instance=_LARGE_DOCUMENT
            )
        masked = jsonschema_rs.validator_for(
            dict(self.document), validate_formats=True, formats=self._formats, mask=_LARGE_DOCUMENT
        )
        error = next(masked.iter_errors(instance))
        message = (
            error.message if len(error.message) <= _MAX_MESSAGE_LENGTH else f"{error.message[:_MAX_MESSAGE_LENGTH]} ..."
        )
        return jsonschema.ValidationError(message, path=error.instance_path, instance=_LARGE_DOCUMENT)


#: Replaces, in a message, a value that is too large to print.
_LARGE_DOCUMENT = "(a large document)"
_MAX_MESSAGE_LENGTH = 1000
#: Bounds by `_size`: larger documents are not printed, or not searched for their fault.
_MAX_PRINTED_SIZE = 5_000
_MAX_SEARCHED_SIZE = 100_000
_CHARACTERS_PER_VALUE = 40


def _size(instance: object) -> int:
    """The number of values in a document; a long text counts as several. Stops above `_MAX_SEARCHED_SIZE`."""
    size, waiting = 0, [instance]
    while waiting and size <= _MAX_SEARCHED_SIZE:
        one = waiting.pop()
        size += 1
        match one:
            case str():
                size += len(one) // _CHARACTERS_PER_VALUE
            case list():
                size += len(one)
                waiting += one[:_MAX_SEARCHED_SIZE]
            case dict():
                size += len(one)
                waiting += [*islice(one, _MAX_SEARCHED_SIZE), *islice(one.values(), _MAX_SEARCHED_SIZE)]
    return size


def _text_check(check: Callable[[str], bool]) -> Callable[[object], bool]:
    """`check` for jsonschema, which also passes values that are not texts: a format accepts those."""
    return lambda value: not isinstance(value, str) or check(value)


@dataclass(frozen=True)
class VersionedSchema:
    """Schemas by the microversion that introduced them. The newest one up to the request's microversion applies."""

    rows: Sequence[tuple[Version, Schema | None]]

    def for_version(self, version: Version | None) -> Schema | None:
        chosen = None
        for since, schema in self.rows:
            if version is None or since <= version:
                chosen = schema
        return chosen


#: PostgreSQL cannot store NUL in a text, and no name contains it.
NUL_REFUSED = "The NUL character (U+0000) is not allowed."

#: The deepest body of any upstream API has seven levels. The bound exists because validation and messages recurse.
MAX_DEPTH = 100


def decode_json(raw: bytes) -> Any:
    """The document in `raw`. Raises `Invalid`, with the message of Python's own decoder, for malformed JSON, for a NUL
    in any text, and for more than `MAX_DEPTH` levels.
    """
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"Malformed JSON: {_json_fault(raw) or error}", code="moorage.json") from error
    # The depth cannot exceed the number of opening brackets, so most bodies need no closer look.
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _is_deep(document):
        raise Invalid(f"Malformed JSON: nested more than {MAX_DEPTH} levels deep", code="moorage.json")
    # JSON can express NUL only this way. The same bytes may also be an escaped backslash and "u0000", so look closely.
    if b"\\u0000" in raw and _has_nul(document):
        raise Invalid(NUL_REFUSED, code="moorage.json")
    return document


def _is_deep(document: object) -> bool:
    """Iterates level by level, because recursion is exactly the danger."""
    level, depth = _containers([document]), 0
    while level and depth <= MAX_DEPTH:
        level = [below for one in level for below in _containers(one.values() if isinstance(one, dict) else one)]
        depth += 1
    return depth > MAX_DEPTH


def _containers(values: Iterable[object]) -> list[list[object] | dict[object, object]]:
    return [value for value in values if isinstance(value, list | dict)]


def _json_fault(raw: bytes) -> str | None:
    """Upstream's message for malformed JSON; None if Python's decoder accepts `raw` (NaN, for example)."""
    try:
        json.loads(raw)
    except (ValueError, RecursionError) as error:
        return str(error)
    return None


def _has_nul(document: object) -> bool:
    match document:
        case str():
            return "\0" in document
        case list():
            return any(_has_nul(item) for item in document)
        case dict():
            return any("\0" in name or _has_nul(value) for name, value in document.items())
    return False


def encode_json(document: object) -> bytes:
    return orjson.dumps(document)
