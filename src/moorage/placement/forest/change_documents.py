"""What the log of changes tells: the state of a provider or consumer after a write, as a document in JSON.

Pure, and made from states that the writer has at hand: nothing is read for it. An entry is for two readers: other
processes of ours look at `provider_id` (what to read again), everybody else at `kind`, `subject` and `document`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import orjson

from moorage.placement.forest.model import Consumer, Provider

#: Pseudo providers in the log.
NAMES_ID = 0  #: resource classes or traits were added or removed
EVERYTHING_ID = -1  #: read all again


class SubjectKind(StrEnum):
    PROVIDER = "provider"  #: a provider's whole state
    USAGES = "usages"  #: a provider's usages and generation: to be laid over the last whole state
    CONSUMER = "consumer"  #: a consumer and what it holds
    NAMES = "names"
    EVERYTHING = "everything"


class ChangeDocument(NamedTuple):
    """`subject` is the uuid of a provider or consumer; without a `document` it is gone."""

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
    """Of a provider of which a claim has changed nothing else."""
    document = {"generation": provider.generation, "usages": provider.used}
    return ChangeDocument(SubjectKind.USAGES, provider.id, provider.uuid, _json(document))


def deleted_provider_document(provider: Provider) -> ChangeDocument:
    return ChangeDocument(SubjectKind.PROVIDER, provider.id, provider.uuid)


def consumer_document(consumer: Consumer, allocations: Mapping[str, Mapping[str, int]]) -> ChangeDocument:
    """`allocations` is {provider uuid: {class: amount}}; empty: the consumer went with its last allocation."""
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
