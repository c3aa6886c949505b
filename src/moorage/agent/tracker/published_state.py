"""The file with the agent's record of its own writes to Placement (``published_state.json`` in its state directory).

Before the agent writes to Placement, it saves the state before and the state after the writes, merged; after the
writes, it saves the new state alone. So after a
crash in between, the file may list entries that Placement does not have, but never lacks one that this agent wrote.
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


class _PublishedDocument(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    providers: dict[str, _Provider]


_VERSION = 1


class PublishedFile:
    """Reads the file once, and writes it when its content changes. For one thread only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._content = self._read()

    @property
    def content(self) -> Published:
        return self._content

    def save(self, published: Published) -> None:
        """Writes the file, which is durable on return. Does nothing if the content is the same."""
        if published == self._content and self._path.exists():
            return
        write_durably(self._path, msgspec.json.format(msgspec.json.encode(_document(published)), indent=1))
        self._content = dict(published)

    def _read(self) -> Published:
        try:
            file = msgspec.json.decode(self._path.read_bytes(), type=_PublishedDocument)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise StartError(
                f"{self._path}: cannot be read: {error}; restore it, or remove it (then entries that this "
                "host published before and no longer wants stay in Placement)"
            ) from error
        if file.version != _VERSION:
            raise StartError(f"{self._path}: has version {file.version}, but this agent writes {_VERSION}")
        return {
            uuid: PublishedProvider(row.name, row.created, frozenset(row.classes), frozenset(row.traits))
            for uuid, row in file.providers.items()
        }


def _document(published: Published) -> _PublishedDocument:
    return _PublishedDocument(
        version=_VERSION,
        providers={
            uuid: _Provider(row.name, row.created, sorted(row.classes), sorted(row.traits))
            for uuid, row in sorted(published.items())
        },
    )


def published_union(before: Published, after: Published) -> Published:
    """The union of both states: all entries of this agent that Placement may have during the writes."""
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
