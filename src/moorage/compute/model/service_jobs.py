"""[pure] The payloads of jobs that compute's own workers run. The payloads of hosts' jobs are in
`moorage.jobs.contract`.

Processes of different releases read them: a reader ignores unknown fields, and a new field needs a default.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from moorage.jobs.contract import AlternatePayload
from moorage.jobs.model import Job


class ServerAction(msgspec.Struct, frozen=True):
    id: str  #: of the server
    action_id: str


class SelectHosts(msgspec.Struct, frozen=True):
    """BUILD: `servers` get hosts together or not at all; empty: the server is the job's key, with `action_id`."""

    request_id: str = ""
    action_id: str = ""
    servers: tuple[ServerAction, ...] = ()
    image_properties: Mapping[str, str] = {}
    alternates: tuple[AlternatePayload, ...] = ()  #: hosts to try first
    tried: Mapping[str, str] = {}  #: {host: reason why the build failed there}


class ReleaseAllocation(msgspec.Struct, frozen=True):
    """RELEASE of the job's key, a server. `final`: it becomes DELETED, and its action ends."""

    final: bool
    action_id: str = ""


class HostUpdate(msgspec.Struct, frozen=True):
    """PUBLISH_STATUS, PUBLISH_AGGREGATES and FORGET_HOST; only the last has the uuid of the `provider`."""

    host: str
    provider: str = ""


class MoveStep(msgspec.Struct, frozen=True):
    """A step of a move that compute runs itself. FORGET_IMAGE has no `move_id`, and the others no `image_id`."""

    move_id: str = ""
    image_id: str | None = None


T = TypeVar("T", SelectHosts, ReleaseAllocation, HostUpdate, MoveStep)


def read_payload(job: Job, payload_type: type[T]) -> T:
    """Raises `msgspec.ValidationError`; `JobWorker.run_job` then postpones the job and logs it."""
    return msgspec.convert(job.payload, payload_type)
