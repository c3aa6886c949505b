"""Request bodies: JSON decoded within a bound, and held against compiled JSON schemas.

jsonschema-rs decides "accept" in microseconds; only a rejection is looked at again by python-jsonschema, which
has the last word and words the refusal as the peers do (their texts are python-jsonschema's texts).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import jsonschema_rs
import orjson

from moorage.core.errors import Invalid
from moorage.wire.microversion import Version


class Schema:
    """One JSON schema (draft 2020-12 unless ``$schema`` says otherwise), compiled at first use."""

    def __init__(
        self,
        document: Mapping[str, Any],
        *,
        formats: Mapping[str, Callable[[str], bool]] | None = None,
        code: str = "moorage.schema",
    ) -> None:
        """`formats` are checks of a service's own for the word ``format``: {"uuid": looks_like_uuid}; `code` is that of
        the refusals.
        """
        self.document = document
        self._code = code
        self._formats = dict(formats or {})

    @cached_property
    def _compiled(self) -> Any:
        return jsonschema_rs.validator_for(dict(self.document), validate_formats=True, formats=self._formats)

    def check(self, instance: Any, word: Callable[[Any], str]) -> None:
        """Raises `Invalid` worded by `word` (a function of a ``jsonschema.ValidationError``)."""
        if self._compiled.is_valid(instance):
            return
        import jsonschema  # 80 ms to import: paid by the first bad request, not by every start

        if (size := _size(instance)) > _MAX_PRINTED_SIZE:
            raise Invalid(word(self._brief(instance, size)), code=self._code)
        validator_class = jsonschema.validators.validator_for(self.document, default=jsonschema.Draft202012Validator)
        checker = jsonschema.FormatChecker()
        for name, check in self._formats.items():
            register: Any = checker.checks(name)
            register(_text_check(check))
        validator = validator_class(self.document, format_checker=checker)
        error = jsonschema.exceptions.best_match(validator.iter_errors(instance))
        if error is not None:
            raise Invalid(word(error), code=self._code)

    def _brief(self, instance: Any, size: int) -> Any:
        """A ``jsonschema.ValidationError`` without the instance: the peers' words print all of it, and for 10 MB that
        took 16 s and made an answer of 30 MB. To find the fault again in so much took 4 s more and 400 MiB.
        """
        import jsonschema

        if size > _MAX_SEARCHED_SIZE:
            return jsonschema.ValidationError("does not fit; it is too large to say where", instance=_LARGE_DOCUMENT)
        masked = jsonschema_rs.validator_for(
            dict(self.document), validate_formats=True, formats=self._formats, mask=_LARGE_DOCUMENT
        )
        error = next(masked.iter_errors(instance))
        words = (
            error.message if len(error.message) <= _MAX_MESSAGE_LENGTH else f"{error.message[:_MAX_MESSAGE_LENGTH]} ..."
        )
        return jsonschema.ValidationError(words, path=error.instance_path, instance=_LARGE_DOCUMENT)


#: Stands in a refusal for what is too large to be printed.
_LARGE_DOCUMENT = "(a large document)"
_MAX_MESSAGE_LENGTH = 1000
#: By `_size`: what is printed as a whole, and what is searched again for its fault.
_MAX_PRINTED_SIZE = 5_000
_MAX_SEARCHED_SIZE = 100_000
_CHARACTERS_PER_VALUE = 40


def _size(instance: Any) -> int:
    """Values in a document, a long text counting for several. Stops counting when it is more than is searched."""
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
    """A format says nothing about what is no text; jsonschema asks about that too."""
    return lambda value: not isinstance(value, str) or check(value)


@dataclass(frozen=True)
class VersionedSchema:
    """Schemas by the microversion they came with; the newest that is not newer than the request applies."""

    rows: Sequence[tuple[Version, Schema | None]]

    def for_version(self, version: Version | None) -> Schema | None:
        chosen = None
        for since, schema in self.rows:
            if version is None or since <= version:
                chosen = schema
        return chosen


#: PostgreSQL cannot store it in a text, and no name in this house has one.
NUL_REFUSED = "The NUL character (U+0000) is not allowed."

#: The deepest body of any peer has seven levels. Checks and words of refusals recurse.
MAX_DEPTH = 100


def decode_json(raw: bytes) -> Any:
    """The document in `raw`. Raises `Invalid` in the words of Python's own decoder, and for a NUL in any text or
    more than `MAX_DEPTH` levels.
    """
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"Malformed JSON: {_json_fault(raw) or error}", code="moorage.json") from error
    # Nothing is nested deeper than it has brackets: most bodies need no closer look.
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _is_deep(document):
        raise Invalid(f"Malformed JSON: nested more than {MAX_DEPTH} levels deep", code="moorage.json")
    # JSON can only spell it so; the spelling may also be an escaped backslash and five characters, so we look.
    if b"\\u0000" in raw and _has_nul(document):
        raise Invalid(NUL_REFUSED, code="moorage.json")
    return document


def _is_deep(document: Any) -> bool:
    """Level by level: recursion is what must not happen."""
    level, depth = _containers([document]), 0
    while level and depth <= MAX_DEPTH:
        level = [below for one in level for below in _containers(one.values() if isinstance(one, dict) else one)]
        depth += 1
    return depth > MAX_DEPTH


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, list | dict)]


def _json_fault(raw: bytes) -> str | None:
    """What the peers say is wrong with `raw`; None where their decoder is content (with NaN, for example)."""
    try:
        json.loads(raw)
    except (ValueError, RecursionError) as error:
        return str(error)
    return None


def _has_nul(document: Any) -> bool:
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
