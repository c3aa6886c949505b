"""Reads which providers have changed from Moorage's change log. OpenStack Placement has none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from moorage.core.errors import NotFound, RemoteError

_CHANGES = "/moorage/v1/changes"


class Getter(Protocol):
    def __call__(self, path: str, query: list[tuple[str, str]], /) -> Any:
        """The JSON document at `path`. Raises `NotFound` for 404 and `RemoteError` for other refusals."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderPlace:
    name: str
    root_uuid: str


@dataclass(frozen=True, slots=True)
class ProviderChanges:
    """Changed providers, and the position in the change log after these changes.

    `places`: {uuid: its place after its last change; None: it was deleted}. `is_everything`: any provider may have
    changed.
    """

    position: int
    places: Mapping[str, ProviderPlace | None]
    is_everything: bool = False


class ProviderChangeLog:
    def __init__(self, get: Getter) -> None:
        self._get = get

    def newest_position(self) -> int | None:
        """The position after the newest change; None if the service has no change log."""
        try:
            return int(self._get(_CHANGES, [("kind", "names"), ("limit", "1")])["last"])
        except NotFound:
            return None

    def since(self, position: int) -> ProviderChanges | None:
        """The changes after `position` of inventories, traits, aggregates and places in the tree, but not of usages.

        None if the service cannot tell: the changes are no longer retained, its database was restored from an older
        backup, or it has no change log.
        """
        places: dict[str, ProviderPlace | None] = {}
        is_everything, since = False, str(position)
        while True:
            query = [("since", since), ("kind", "provider,everything"), ("limit", "1000")]
            try:
                page = self._get(_CHANGES, query)
            except NotFound:
                return None
            except RemoteError as error:
                if error.status in (400, 410):
                    return None
                raise
            for change in page["changes"]:
                if change["subject"] is None:
                    is_everything = True
                else:
                    places[change["subject"]] = _place(change["document"])
            if page["is_last"]:
                return ProviderChanges(int(page["last"]), places, is_everything)
            since = page["next"]

    def past_place(self, uuid: str) -> ProviderPlace | None:
        """The place of a provider that was deleted; None if the log does not retain it."""
        try:
            changes = self._get(f"/moorage/v1/history/providers/{uuid}/changes", [("limit", "1000")])["changes"]
        except NotFound:
            return None
        # Changes of usages alone have no name.
        places = [place for change in changes if (place := _place(change["document"])) is not None]
        return places[-1] if places else None


def _place(document: Mapping[str, Any] | None) -> ProviderPlace | None:
    if document is None or "name" not in document:
        return None
    return ProviderPlace(document["name"], document["root_provider_uuid"])
