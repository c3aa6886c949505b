"""[pure] Checks a document against the JSON schema and the rules that a schema cannot express; reports all faults.

Spec: docs/evidence/specs/provider-config.md, "Format". The caller passes the schema, which is package data
(`agent/schemas`).
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moorage.agent.provider_config.rules.model import (
    COMPUTE_NODE,
    AdditionalInventory,
    ConfigFault,
    FilePosition,
    ProviderConfig,
    Source,
)
from moorage.agent.provider_config.rules.yaml_text import Document, Path

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

MAJOR = 1
#: The newest minor version whose fields are all known here.
MINOR = 0

_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\Z")
_VERSION_PATH: Path = ("meta", "schema_version")
_MAX_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class CheckedDocument:
    """`configs` is empty if there are `faults`. `unknown`: paths of ignored fields, each with a hint."""

    configs: tuple[ProviderConfig, ...]
    faults: tuple[ConfigFault, ...]
    unknown: tuple[str, ...]


def check_document(document: Document, file: str, schema: Mapping[str, Any]) -> CheckedDocument:
    value = _with_version_as_text(document)
    if fault := _version_fault(document, file):
        return CheckedDocument((), (fault,), ())
    # Imported here because it takes longer than all checks, and most hosts have no file.
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(schema)
    faults = [
        _schema_fault(error, document, file)
        for error in validator.iter_errors(value)
        if not _repeats_another_fault(error)
    ]
    reader = _DocumentReader(document, file)
    if not faults:
        faults = list(reader.faults())
    faults.sort(key=lambda fault: (fault.place or FilePosition(0, 0), fault.path))
    unknown = tuple(_unknown_fields(value, schema, schema, ()))
    return CheckedDocument(() if faults else tuple(reader.configs()), tuple(faults), unknown)


def duplicate_faults(configs: Iterable[ProviderConfig]) -> Iterator[ConfigFault]:
    """A fault for each entry whose uuid or name another entry has already. Upper and lower case of UUIDs are equal."""
    first: dict[str, Source] = {}
    for config in configs:
        key = config.identification.lower() if config.uuid else config.identification
        if key in first:
            yield ConfigFault(
                config.source.file,
                f"{config.identification} is configured twice, first at {first[key]}",
                "keep one entry per provider",
                config.source.place,
            )
        else:
            first[key] = config.source


def path_text(path: Sequence[str | int]) -> str:
    """A path in the notation of messages.

    >>> path_text(("providers", 0, "traits"))
    'providers[0].traits'
    """
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def _with_version_as_text(document: Document) -> Any:
    """The values, with the version as the text in the file: ``1.10``, not the number 1.1."""
    value = document.value
    meta = value.get("meta") if isinstance(value, dict) else None
    if _VERSION_PATH in document.texts and isinstance(value, dict) and isinstance(meta, dict):
        return {**value, "meta": {**meta, "schema_version": document.texts[_VERSION_PATH]}}
    return value


def _version_fault(document: Document, file: str) -> ConfigFault | None:
    """A fault for another major version. Call it first: the meaning of that version's other fields is unknown."""
    text = document.texts.get(_VERSION_PATH, "")
    match = _VERSION.match(text)
    if match is None or int(match[1]) == MAJOR:
        return None
    return ConfigFault(
        file,
        f"schema version {text} is not known",
        f"this agent reads {MAJOR}.x: rewrite the file for {MAJOR}.{MINOR}, or upgrade the agent",
        document.places[_VERSION_PATH],
        path_text(_VERSION_PATH),
    )


def _repeats_another_fault(error: "ValidationError") -> bool:
    """Whether `error` comes with an equivalent one: for a value that is not a map, the schema reports two errors."""
    return error.validator == "oneOf" and not isinstance(error.instance, dict)


def _schema_fault(error: "ValidationError", document: Document, file: str) -> ConfigFault:
    path: Path = tuple(error.absolute_path)
    if "propertyNames" in error.absolute_schema_path:
        path = (*path, str(error.instance))
    schema = error.schema if isinstance(error.schema, Mapping) else {}
    remedy = schema.get("remedies", {}).get(error.validator, "see `moorage provider-config sample`")
    return ConfigFault(file, _problem(error), remedy, document.places.get(path), path_text(path))


def _problem(error: "ValidationError") -> str:
    given = error.instance
    if error.validator == "required":
        return error.message
    if error.validator == "oneOf":
        both = isinstance(given, dict) and {"uuid", "name"} <= given.keys()
        return "has both `uuid` and `name`" if both else "has neither `uuid` nor `name`"
    if error.validator == "type":
        return f"{_shortened(given)} is not {_TYPE_NAMES[str(error.validator_value)]}"
    return f"{_shortened(given)} {_REFUSED.get(str(error.validator), 'is out of range')}"


_REFUSED = {
    "pattern": "is not allowed",
    "minLength": "is empty",
    "minProperties": "is empty",
    "maxLength": "is too long",
}
_TYPE_NAMES = {
    "object": "a map",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
}


def _shortened(value: object) -> str:
    if value is None:
        return "nothing"
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[: _MAX_SHOWN_CHARACTERS - 3] + "..."


class _DocumentReader:
    """Reads the entries of a document that the schema accepted."""

    def __init__(self, document: Document, file: str) -> None:
        self._document = document
        self._file = file

    def faults(self) -> Iterator[ConfigFault]:
        """Faults that a schema cannot express: relations between fields, and a class in two items of a list."""
        for path, name, record, earlier in self._inventories():
            where = self._document.places[path]
            if earlier is not None:
                problem = f"{name} occurs twice, first at {earlier}"
                yield ConfigFault(self._file, problem, "keep one of them", where, path_text(path))
            if record.get("reserved", 0) > record["total"]:
                problem = f"reserved {record['reserved']} is more than total {record['total']}"
                yield ConfigFault(self._file, problem, "reserve at most the total", where, path_text(path))
            if "max_unit" in record and record.get("min_unit", 1) > record["max_unit"]:
                problem = f"min_unit {record['min_unit']} is more than max_unit {record['max_unit']}"
                yield ConfigFault(
                    self._file, problem, "no amount could be allocated: change one of them", where, path_text(path)
                )

    def configs(self) -> Iterator[ProviderConfig]:
        value: Any = self._document.value
        for index, entry in enumerate(value.get("providers", ())):
            identification = entry["identification"]
            uuid, name = identification.get("uuid"), identification.get("name")
            yield ProviderConfig(
                source=self._source(("providers", index)),
                uuid=None if uuid in (None, COMPUTE_NODE) else uuid.lower(),
                name=None if name == COMPUTE_NODE else name,
                inventories={
                    name: AdditionalInventory(source=self._source(path), **_known_fields(record))
                    for path, name, record, _ in self._inventories_of(index, entry)
                },
                traits=frozenset(entry.get("traits", {}).get("additional", ())),
            )

    def _inventories(self) -> Iterator[tuple[Path, str, Mapping[str, Any], str | None]]:
        value: Any = self._document.value
        for index, entry in enumerate(value.get("providers", ())):
            yield from self._inventories_of(index, entry)

    def _inventories_of(
        self, index: int, entry: Mapping[str, Any]
    ) -> Iterator[tuple[Path, str, Mapping[str, Any], str | None]]:
        """(path, class, record, source of an earlier record of that class), for a map and for a list of maps."""
        additional = entry.get("inventories", {}).get("additional", {})
        base: Path = ("providers", index, "inventories", "additional")
        maps: list[tuple[Path, Mapping[str, Any]]] = (
            [((*base, at), item) for at, item in enumerate(additional)]
            if isinstance(additional, list)
            else [(base, additional)]
        )
        seen: dict[str, str] = {}
        for prefix, records in maps:
            for name, record in records.items():
                path = (*prefix, name)
                yield path, name, record, seen.get(name)
                seen.setdefault(name, str(self._source(path)))

    def _source(self, path: Path) -> Source:
        return Source(self._file, self._document.places[path])


def _known_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with Placement's types: ``22.0`` becomes the integer 22, and a ratio of 1 becomes 1.0."""
    fields: dict[str, Any] = {
        name: int(record[name]) for name in ("total", "reserved", "min_unit", "max_unit", "step_size") if name in record
    }
    if "allocation_ratio" in record:
        fields["allocation_ratio"] = float(record["allocation_ratio"])
    return fields


def _unknown_fields(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: Path) -> Iterator[str]:
    """Paths of fields that `schema` does not define, at every level that it describes."""
    schema = _resolved(schema, root)
    if "if" in schema:
        schema = _resolved(schema["then" if isinstance(value, list) else "else"], root)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        for name, child in value.items():
            if name in properties:
                yield from _unknown_fields(child, properties[name], root, (*path, name))
            elif isinstance(others, Mapping):
                yield from _unknown_fields(child, others, root, (*path, name))
            else:
                yield path_text((*path, name)) + _similar_name_hint(name, properties)
    elif isinstance(value, list) and "items" in schema:
        for index, child in enumerate(value):
            yield from _unknown_fields(child, schema["items"], root, (*path, index))


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    return found


def _similar_name_hint(name: str, properties: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, properties, n=1) if len(name) <= _MAX_SHOWN_CHARACTERS else []
    return f" (is `{close[0]}` meant?)" if close else ""
