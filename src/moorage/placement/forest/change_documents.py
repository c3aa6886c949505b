"""Entries of the change log as they are written: the state of a provider or consumer after a write, as a JSON document.

Pure: computed from states that the writer has in memory. An entry has two kinds of readers: other Moorage processes
read `provider_id` (the provider to read again), clients read `kind`, `subject` and `document`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import orjson

from moorage.placement.forest.model import Consumer, Provider

#: Pseudo providers in the log.
NAMES_ID = 0  #: resource classes or traits were added or removed
EVERYTHING_ID = -1  #: readers must read everything again


class SubjectKind(StrEnum):
    PROVIDER = "provider"  #: a provider's whole state
    USAGES = "usages"  #: a provider's usages and generation, which update its last complete document
    CONSUMER = "consumer"  #: a consumer and its allocations
    NAMES = "names"
    EVERYTHING = "everything"


class ChangeDocument(NamedTuple):
    """`subject` is the uuid of a provider or consumer; `document` is None if it was deleted."""

    kind: SubjectKind
    provider_id: int | None
    subject: str | None = None
    document: str | None = None


NAMES = ChangeDocument(SubjectKind.NAMES, NAMES_ID)
EVERYTHING = ChangeDocument(SubjectKind.EVERYTHING, EVERYTHING_ID)


def provider_document(provider: Provider, parent_uuid: str | None, root_uuid: str) -> ChangeDocument:
    document = {
        "uuid": provider.uuid,
        "name": provider.name,
        "generation": provider.generation,
        "parent_provider_uuid": parent_uuid,
        "root_provider_uuid": root_uuid,
        "inventories": provider.inventories,
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
        "usages": provider.used,
    }
    return ChangeDocument(SubjectKind.PROVIDER, provider.id, provider.uuid, _json(document))


def usages_document(provider: Provider) -> ChangeDocument:
    """The document of a claim or release, which changes only the usage and generation of the provider."""
    document = {"generation": provider.generation, "usages": provider.used}
    return ChangeDocument(SubjectKind.USAGES, provider.id, provider.uuid, _json(document))


def deleted_provider_document(provider: Provider) -> ChangeDocument:
    return ChangeDocument(SubjectKind.PROVIDER, provider.id, provider.uuid)


def consumer_document(consumer: Consumer, allocations: Mapping[str, Mapping[str, int]]) -> ChangeDocument:
    """`allocations` is {provider uuid: {class: amount}}; empty if the consumer was deleted with its last allocation."""
    if not allocations:
        return ChangeDocument(SubjectKind.CONSUMER, None, consumer.uuid)
    document = {
        "generation": consumer.generation,
        "project_id": consumer.project_id,
        "user_id": consumer.user_id,
        "consumer_type": consumer.consumer_type,
        "allocations": allocations,
    }
    return ChangeDocument(SubjectKind.CONSUMER, None, consumer.uuid, _json(document))


def _json(document: Mapping[str, object]) -> str:
    return orjson.dumps(document).decode()
