"""Accelerator requests (ARQs): their states, the patches of callers, and the jobs for hosts. Pure.

A request is one unit of one group of a device profile. Binding it to a resource provider for an instance is work for
the host's agent: all requests of an instance on a host form one `BindJob`, which the engine behind `os_acc.plug`
carries out.

Spec: docs/evidence/specs/accelerator-attach.md
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from moorage.accelerator.model.attach_state import Attachment
from moorage.accelerator.model.naming import canonical_id, spec_class
from moorage.accelerator.model.profile import ProgramRequest, function_id_of
from moorage.accelerator.model.rows import RequestRecord
from moorage.core.errors import Invalid
from moorage.core.ids import is_uuid
from moorage.core.states import transition_table
from moorage.jobs.contract import BindJob, ProgramJob


class RequestState(StrEnum):
    INITIAL = "Initial"
    BIND_STARTED = "BindStarted"
    BOUND = "Bound"
    UNBOUND = "Unbound"
    BIND_FAILED = "BindFailed"
    DELETING = "Deleting"


TRANSITIONS = transition_table(
    "an accelerator request",
    {
        RequestState.INITIAL: [RequestState.BIND_STARTED, RequestState.UNBOUND, RequestState.DELETING],
        RequestState.BIND_STARTED: [
            RequestState.BOUND,
            RequestState.BIND_FAILED,
            RequestState.UNBOUND,
            RequestState.DELETING,
        ],
        RequestState.BOUND: [RequestState.UNBOUND, RequestState.BIND_FAILED, RequestState.DELETING],
        RequestState.BIND_FAILED: [RequestState.UNBOUND, RequestState.DELETING],
        RequestState.UNBOUND: [RequestState.BIND_STARTED, RequestState.DELETING],
    },
)

#: States in which the host holds, or may hold, a handle for the request.
ON_HOST = frozenset({RequestState.BIND_STARTED, RequestState.BOUND, RequestState.BIND_FAILED})

#: States in which the handle counts as taken; not ``Deleting``, because the handle is then about to be released.
HOLDING = frozenset({RequestState.BIND_STARTED, RequestState.BOUND})

#: Time that Nova waits until a request is resolved (its ``arq_binding_timeout``). Nova does not check the state of a
#: resolved request: if a failure were shown too early, the server would start without its accelerator.
NOVA_BIND_TIMEOUT = timedelta(seconds=300)

_FIELDS = frozenset({"hostname", "device_rp_uuid", "instance_uuid", "project_id"})
_REQUIRED = ("hostname", "device_rp_uuid", "instance_uuid")


@dataclass(frozen=True, slots=True)
class Binding:
    """The host, provider and instance to bind one request to."""

    hostname: str
    device_rp_uuid: str
    instance_uuid: str
    project_id: str | None = None


def wanted_content(order: ProgramJob) -> ProgramRequest:
    return ProgramRequest(canonical_id(order.image_id), function_id_of(order.function_id), order.function_name)


def expected_content(order: ProgramJob) -> ProgramRequest:
    """`order.only` with its function id in canonical form, for comparison with bitstreams."""
    only = order.only
    return ProgramRequest(only.bitstream_id, function_id_of(only.function_id), only.function_name)


def units_of_group(group: Mapping[str, str]) -> int:
    """The number of requests that are created for one group of a profile."""
    return sum(int(value) for key, value in group.items() if key.startswith("resources:"))


def decode_patch(document: Mapping[str, Sequence[Mapping[str, str]]]) -> dict[str, Binding | None]:
    """Returns where to bind each request, by uuid; None: unbind it. Raises `Invalid` naming the request and the
    operation.
    """
    return {uuid: _decode_binding(uuid, operations) for uuid, operations in document.items()}


def _decode_binding(uuid: str, operations: Sequence[Mapping[str, str]]) -> Binding | None:
    where = f"accelerator request {uuid}"
    kinds = {operation["op"] for operation in operations}
    if kinds not in ({"add"}, {"remove"}):
        raise Invalid(f"{where}: the operations must all be add (bind) or all be remove (unbind), not {sorted(kinds)}")
    fields = {}
    for operation in operations:
        name = operation["path"].removeprefix("/")
        if name not in _FIELDS:
            raise Invalid(f"{where}: path {operation['path']!r} must be one of {_list_paths(sorted(_FIELDS))}")
        fields[name] = operation.get("value") or ""
    if kinds == {"remove"}:
        return None
    if missing := [name for name in _REQUIRED if not fields.get(name)]:
        raise Invalid(f"{where}: to bind it, add a value for {_list_paths(missing)} too")
    for name in ("device_rp_uuid", "instance_uuid"):
        if not is_uuid(fields[name]):
            raise Invalid(f"{where}: {name} is {fields[name]!r}; it must be a UUID")
    return Binding(
        fields["hostname"], fields["device_rp_uuid"].lower(), fields["instance_uuid"].lower(), fields.get("project_id")
    )


def bind_order(
    requests: Sequence[RequestRecord], bindings: Mapping[str, Binding], project_id: str, user_id: str
) -> BindJob:
    """`requests` belong to one instance and host; `user_id`: of the caller who binds them. Raises `Invalid` if a group
    has two providers; a group is placed as one.
    """
    providers: dict[str, str] = {}
    for request in requests:
        group, wanted = str(request.device_profile_group_id), bindings[request.uuid].device_rp_uuid
        if providers.setdefault(group, wanted) != wanted:
            raise Invalid(
                f"group {group} of device profile {request.device_profile_name} cannot be bound to two resource "
                f"providers, {providers[group]} and {wanted}; name one for the group"
            )
    return BindJob(
        instance_uuid=bindings[requests[0].uuid].instance_uuid,
        project_id=project_id,
        groups={str(one.device_profile_group_id): one.profile_group or {} for one in requests},
        providers=providers,
        requests={one.uuid: str(one.device_profile_group_id) for one in requests},
        user_id=user_id,
    )


def extra_specs_of(order: BindJob) -> dict[str, str]:
    """The profile's groups as extra specs of a flavor; a group's number becomes the suffix of its keys."""
    specs = {}
    for number, group in order.groups.items():
        for key, value in group.items():
            kind, _, name = key.partition(":")
            specs[f"{kind}{number}:{spec_class(name) if kind == 'resources' else name}"] = value
    return specs


def handles_by_request(order: BindJob, attachment: Attachment) -> dict[str, str]:
    """The handle address of each request, by uuid; handles of a group are assigned in the order of its requests."""
    by_group: dict[str, list[str]] = {}
    for handle in attachment.handles:
        by_group.setdefault(handle.group, []).append(handle.pci_id)
    return {uuid: by_group[group].pop(0) for uuid, group in sorted(order.requests.items())}


def is_hidden(request: RequestRecord) -> bool:
    """Whether callers must not see the request: it is being deleted, and its host still has to release the handle."""
    return request.state == RequestState.DELETING


def is_made_by_api(request: RequestRecord) -> bool:
    """Whether the request was created through the API, not reported by a host for a plugged handle."""
    return request.device_profile_name is not None


def of_one_host(requests: Sequence[RequestRecord]) -> list[RequestRecord]:
    """Those of an instance's `requests` that count. If some were bound through the API, a report of another host about
    the instance is false, and its handle must not get into the definition of the guest.
    """
    hosts = {one.hostname for one in requests if is_made_by_api(one) and one.hostname is not None}
    return [one for one in requests if is_made_by_api(one) or not hosts or one.hostname in hosts]


def state_shown_to_compute(request: RequestRecord, now: datetime) -> str:
    """The state of a request in a list by instance, which is how Nova reads requests.

    A failure is shown only after Nova has stopped waiting; before that, an event reports it (`NOVA_BIND_TIMEOUT`).
    Callers that read a request by uuid, or all requests, are not Nova and see the failure at once.
    """
    if request.state != RequestState.BIND_FAILED or request.updated_at is None:
        return request.state
    return request.state if now - request.updated_at >= NOVA_BIND_TIMEOUT else RequestState.BIND_STARTED


def _list_paths(names: Sequence[str]) -> str:
    return ", ".join(f"/{name}" for name in names)
