"""[pure] Reads a YAML document as plain values with the position of each, in bounded time and memory.

It reads YAML events instead of calling `yaml.safe_load`, because events show the position of each value, the source
text of a scalar (1.10 is not 1.1) and duplicate keys, and allow limits on depth, aliases and size before aliases are
expanded.

Scalars follow YAML 1.2: ``yes`` is a text, and so is ``010``, which YAML 1.1 would read as the number 8.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml
from yaml.reader import ReaderError

from moorage.agent.provider_config.rules.model import FilePosition
from moorage.core.json import Json

MAX_DEPTH = 40
MAX_ALIASES = 1_000
#: Limit for the number of values, also after aliases are expanded; a file of 1 MiB has about 50,000.
MAX_VALUES = 100_000

MAX_KEY_CHARACTERS = 1_000

Value = bool | int | float | str | list[Json] | dict[str, Json] | None
Path = tuple[str | int, ...]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})\Z")
_FLOAT = re.compile(r"[-+]?([0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40}|[0-9]{1,40}(?=[eE]))([eE][-+]?[0-9]{1,3})?\Z")
_CONSTANTS: Mapping[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"


class YamlFault(Exception):
    """The text is not one valid YAML document, or exceeds a limit."""

    def __init__(self, problem: str, remedy: str, place: FilePosition | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.place = place


@dataclass(frozen=True)
class Document:
    value: Value
    places: Mapping[Path, FilePosition]  #: position of each value; for an entry of a map: of its key
    texts: Mapping[Path, str]  #: the source text of each scalar


@dataclass(slots=True)
class _Node:
    place: FilePosition
    text: str | None = None  #: of a scalar
    value: Value = None  #: of a scalar
    items: "list[_Node] | None" = None
    entries: "dict[str, tuple[FilePosition, _Node]] | None" = None
    complete: bool = True


def read_yaml(data: bytes) -> Document:
    """The one document in `data`. Raises `YamlFault`."""
    text = _decoded(data)
    try:
        root = _Composer(yaml.parse(text, Loader=_LOADER)).document()
    except yaml.MarkedYAMLError as error:
        raise _syntax_fault(error, text) from error
    except ReaderError as error:
        raise _character_fault(error, text) from error
    return _Expansion().document(root)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        place = FilePosition(before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        raise YamlFault("is not UTF-8 text", "save the file in the encoding UTF-8", place) from error


def _syntax_fault(error: yaml.MarkedYAMLError, text: str) -> YamlFault:
    mark = error.problem_mark or error.context_mark
    place = FilePosition(mark.line + 1, mark.column + 1) if mark else None
    problem = " ".join(part for part in (error.context, error.problem) if part)
    lines = text.splitlines()
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    indent = line[: len(line) - len(line.lstrip())]
    remedy = "indent with spaces, not with tabs" if "\t" in indent else "correct the YAML there"
    return YamlFault(f"is not YAML: {problem}", remedy, place)


def _character_fault(error: ReaderError, text: str) -> YamlFault:
    bad = next((at for at, char in enumerate(text) if not char.isprintable() and char not in "\t\n\r\x85"), None)
    place = None
    if bad is not None:
        place = FilePosition(text.count("\n", 0, bad) + 1, bad - (text.rfind("\n", 0, bad) + 1) + 1)
    return YamlFault(f"is not YAML: {error.reason}", "remove the invisible character there", place)


class _Composer:
    """Builds nodes from events. An alias becomes a reference to its node, not a copy."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._anchors: dict[str, _Node] = {}
        self._aliases = 0
        self._nodes = 0

    def document(self) -> _Node:
        root: _Node | None = None
        for event in self._events:
            if isinstance(event, yaml.StreamStartEvent | yaml.StreamEndEvent | yaml.DocumentEndEvent):
                continue
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise YamlFault("contains more than one document", "use a separate file for each", _position(event))
                continue
            root = self._read_node(event, depth=0)
        if root is None:
            raise YamlFault("is empty", "write `meta` and `providers`, or remove the file", FilePosition(1, 1))
        return root

    def _read_node(self, event: yaml.Event, depth: int) -> _Node:
        place = _position(event)
        if isinstance(event, yaml.AliasEvent):
            return self._resolve_alias(event, place)
        self._count_values(1, place)
        if depth > MAX_DEPTH:
            raise YamlFault(f"has more than {MAX_DEPTH} levels", "split or simplify the file", place)
        node = _Node(place)
        if anchor := getattr(event, "anchor", None):
            self._anchors[anchor] = node
        if isinstance(event, yaml.ScalarEvent):
            node.text = event.value
            node.value = _scalar(event, place)
            return node
        node.complete = False
        if isinstance(event, yaml.SequenceStartEvent):
            _check_tag(event.tag, "seq", place)
            node.items = list(self._read_list(depth))
        elif isinstance(event, yaml.MappingStartEvent):
            _check_tag(event.tag, "map", place)
            self._read_map(node, depth)
        node.complete = True
        return node

    def _resolve_alias(self, event: yaml.AliasEvent, place: FilePosition) -> _Node:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise YamlFault(f"has more than {MAX_ALIASES} aliases", "write the values out", place)
        target = self._anchors.get(event.anchor or "")
        if target is None:
            raise YamlFault(f"the alias *{event.anchor} has no anchor before it", "write the value out", place)
        if not target.complete:
            raise YamlFault(f"the alias *{event.anchor} is inside its own anchor", "write the value out", place)
        return target

    def _read_list(self, depth: int) -> Iterator[_Node]:
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._read_node(event, depth + 1)

    def _read_map(self, node: _Node, depth: int) -> None:
        """Reads the entries of a map. For a key that occurs several times, the map's own entry counts before those of
        ``<<``, and among these the first.
        """
        entries: dict[str, tuple[FilePosition, _Node]] = {}
        sources: list[_Node] = []
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            place = _position(event)
            if not isinstance(event, yaml.ScalarEvent):
                raise YamlFault("a key of a map is not a plain text", "write the key out as a word", place)
            if len(event.value) > MAX_KEY_CHARACTERS:
                raise YamlFault(f"a key has more than {MAX_KEY_CHARACTERS} characters", "use a shorter one", place)
            value = self._read_node(next(self._events), depth + 1)
            if event.value == _MERGE and event.implicit[0]:
                sources += _merge_sources(value, place)
            elif event.value in entries:
                first = entries[event.value][0].line
                problem = f"the key {event.value!r} occurs twice, first in line {first}"
                raise YamlFault(problem, "keep one of them", place)
            else:
                entries[event.value] = (place, value)
        for source in sources:
            self._count_values(len(source.entries or ()), node.place)
            for key, entry in (source.entries or {}).items():
                entries.setdefault(key, entry)
        node.entries = entries

    def _count_values(self, more: int, place: FilePosition) -> None:
        self._nodes += more
        if self._nodes > MAX_VALUES:
            raise YamlFault(f"has more than {MAX_VALUES} values", "split or simplify the file", place)


def _merge_sources(value: _Node, place: FilePosition) -> list[_Node]:
    sources = value.items if value.items is not None else [value]
    if any(source.entries is None for source in sources):
        raise YamlFault("`<<` takes a map, or a list of maps", "name a map with an alias", place)
    return sources


def _position(event: yaml.Event) -> FilePosition:
    mark = event.start_mark
    return FilePosition(mark.line + 1, mark.column + 1) if mark else FilePosition(1, 1)


def _check_tag(tag: str | None, kind: str, place: FilePosition) -> None:
    if tag not in (None, "!", _TAG + kind):
        raise YamlFault(f"the tag {tag} is unknown", "remove the tag", place)


def _scalar(event: yaml.ScalarEvent, place: FilePosition) -> Value:
    if event.tag in ("!", _TAG + "str") or (event.tag is None and not event.implicit[0]):
        return str(event.value)
    if event.tag not in (None, _TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"):
        raise YamlFault(f"the tag {event.tag} is unknown", "remove the tag", place)
    return plain_scalar(event.value)


def plain_scalar(text: str) -> Value:
    """The value of a scalar without quotes."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text) and math.isfinite(number := float(text)):
        return number
    return text


class _Expansion:
    """Builds values from nodes, with aliases expanded. Limits their number, because few aliases can expand to very many
    values.
    """

    def __init__(self) -> None:
        self._places: dict[Path, FilePosition] = {}
        self._texts: dict[Path, str] = {}

    def document(self, root: _Node) -> Document:
        value = self._value(root, (), root.place)
        return Document(value, self._places, self._texts)

    def _value(self, node: _Node, path: Path, place: FilePosition) -> Value:
        if len(self._places) >= MAX_VALUES or len(path) > MAX_DEPTH:
            raise YamlFault(
                f"has more than {MAX_VALUES} values or {MAX_DEPTH} levels after its aliases are expanded",
                "write it without aliases",
                node.place,
            )
        self._places[path] = place
        if node.items is not None:
            return [self._value(item, (*path, index), item.place) for index, item in enumerate(node.items)]
        if node.entries is not None:
            return {key: self._value(child, (*path, key), where) for key, (where, child) in node.entries.items()}
        self._texts[path] = node.text or ""
        return node.value
