"""What the client of placement gives out and takes: providers, what they have, who holds it; to and from the wire."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Resources = Mapping[str, int]


@dataclass(frozen=True)
class Provider:
    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str


@dataclass(frozen=True)
class Holder:
    """A consumer. `generation` None: it holds nothing any more, or not yet."""

    uuid: str
    generation: int | None
    project_id: str
    user_id: str
    type: str
    allocations: Mapping[str, Resources]  # {provider uuid: {class: amount}}
    written_at: datetime  #: when the newest of them was written


def provider_of(document: Mapping[str, Any]) -> Provider:
    return Provider(
        uuid=document["uuid"],
        name=document["name"],
        generation=document["generation"],
        parent_uuid=document["parent_provider_uuid"],
        root_uuid=document["root_provider_uuid"],
    )
