"""The file in which the agent remembers what it put into Placement (``published_state.json`` in its state directory).

Written before the writes to Placement with what may be there afterwards, and after them with what is there: a crash
in between leaves too much in it, never too little.
"""

from pathlib import Path

import msgspec

from moorage.agent.tree.provider_tree_diff import Published, PublishedProvider
from moorage.core.errors import StartError
from moorage.durable import write_durably


class _Provider(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    created: bool
    classes: list[str]
    traits: list[str]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    providers: dict[str, _Provider]


_VERSION = 1


class PublishedFile:
    """Read once, written whenever it changes; used by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._content = self._read()

    @property
    def content(self) -> Published:
        return self._content

    def save(self, published: Published) -> None:
        """Durable when this returns. Nothing is written where nothing changed."""
        if published == self._content and self._path.exists():
            return
        write_durably(self._path, msgspec.json.format(msgspec.json.encode(_encoded(published)), indent=1))
        self._content = dict(published)

    def _read(self) -> Published:
        try:
            file = msgspec.json.decode(self._path.read_bytes(), type=_File)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise StartError(
                f"{self._path}: cannot be read: {error}; restore it, or remove it (what this host published so far "
                "and wants no more then stays in Placement)"
            ) from error
        if file.version != _VERSION:
            raise StartError(f"{self._path}: is of version {file.version}, this agent writes {_VERSION}")
        return {
            uuid: PublishedProvider(row.name, row.created, frozenset(row.classes), frozenset(row.traits))
            for uuid, row in file.providers.items()
        }


def _encoded(published: Published) -> _File:
    return _File(
        version=_VERSION,
        providers={
            uuid: _Provider(row.name, row.created, sorted(row.classes), sorted(row.traits))
            for uuid, row in sorted(published.items())
        },
    )


def published_union(before: Published, after: Published) -> Published:
    """What may be ours while the writes are under way."""
    merged = dict(before)
    for uuid, new in after.items():
        old = before.get(uuid)
        merged[uuid] = (
            new
            if old is None
            else PublishedProvider(
                new.name, new.created or old.created, old.classes | new.classes, old.traits | new.traits
            )
        )
    return merged
