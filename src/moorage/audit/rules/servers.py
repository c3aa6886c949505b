"""Servers: their hosts, their allocations, and operations that are stuck. Pure.

Judges only servers without an operation in progress (`model.AuditedServer`) for the grace period, because a moving
server has allocations at both ends. A server's allocations must be on the host that compute names, in the amounts of
its flavor. Classes that the flavor does not name are not compared: devices, ports and images add their own.

Stuck operations: no API shows jobs, so this module judges the servers and accelerator requests that wait for them. It
reports those whose host is missing or down. The metrics count the jobs themselves by age.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cached_property

from moorage.audit.model import (
    AuditedAccelerators,
    AuditedProvider,
    AuditedServer,
    AuditSnapshot,
    Compute,
    Finding,
    FindingKind,
    Repair,
    Resources,
    provider_names,
    root_by_provider,
)

#: An image may require dedicated processors (PCPU) instead of the flavor's VCPU, in the same number.
_PROCESSORS = ("VCPU", "PCPU")
_OWN_CLASSES = frozenset({*_PROCESSORS, "MEMORY_MB", "DISK_GB"})

#: {provider: the server's allocation there}
_Holding = Mapping[str, Resources]


def doubtful_servers(snapshot: AuditSnapshot, grace: timedelta) -> frozenset[str]:
    """Servers whose allocations seem wrong, judged by the providers' lists: they are read again."""
    held: dict[str, dict[str, Resources]] = {}
    for provider in snapshot.providers.values():
        for consumer, resources in provider.held.items():
            held.setdefault(consumer, {})[provider.uuid] = resources
    return frozenset(finding.subject for finding in _all(snapshot, grace, held))


def server_findings(snapshot: AuditSnapshot, grace: timedelta) -> Iterator[Finding]:
    """Findings about doubtful servers, by the allocations of their second reading."""
    suspected = doubtful_servers(snapshot, grace)
    held = {uuid: snapshot.consumers[uuid].allocations for uuid in suspected if uuid in snapshot.consumers}
    for finding in _all(snapshot, grace, held, only=suspected):
        consumer = snapshot.consumers.get(finding.subject)
        if consumer is None or snapshot.now - consumer.written_at >= grace:
            yield finding


def _all(
    snapshot: AuditSnapshot, grace: timedelta, held: Mapping[str, _Holding], only: frozenset[str] | None = None
) -> Iterator[Finding]:
    compute = snapshot.compute
    if compute is None:
        return
    hosts = _ServerChecks(snapshot, compute)
    for uuid, server in sorted(compute.states.items()):
        if snapshot.now - server.updated_at >= grace and (only is None or uuid in only):
            finding = hosts.finding(uuid, server, held.get(uuid, {}))
            if finding is not None:
                yield finding


class _ServerChecks:
    def __init__(self, snapshot: AuditSnapshot, compute: Compute) -> None:
        self._snapshot = snapshot
        self._compute = compute
        self._root = root_by_provider(snapshot.providers)

    def finding(self, uuid: str, server: AuditedServer, held: _Holding) -> Finding | None:
        """The worst fault of the server's allocations; None if there is none."""
        if server.node is None:
            return self._finding_without_host(uuid, held) if held else None
        if server.node not in self._compute.nodes:
            return Finding(
                FindingKind.SERVER_WITHOUT_HOST,
                uuid,
                server.node,
                "compute names this host, but has no such hypervisor",
                "nothing: start its compute service again, or evacuate or delete the server",
            )
        left_behind = {self._compute.nodes.get(node) for node in self._compute.evacuated.get(uuid, ())}
        counted = {place: units for place, units in held.items() if self._root.get(place) not in left_behind}
        wrong = self._fault(server, self._compute.nodes[server.node], counted)
        return None if wrong is None else self._finding_about(wrong[0], uuid, server, held, wrong[1])

    def _finding_without_host(self, uuid: str, held: _Holding) -> Finding:
        has_device = self._has_device(uuid)
        return Finding(
            FindingKind.ALLOCATION_ELSEWHERE,
            uuid,
            provider_names(self._snapshot, held),
            "it is on no host, but has allocations",
            "nothing: free the device first" if has_device else "nothing; with --also UUID releases it",
            None if has_device else Repair.SET_HOLDING,
            holding={},
        )

    def _fault(self, server: AuditedServer, root: str, held: _Holding) -> tuple[FindingKind, str] | None:
        if not held:
            return FindingKind.SERVER_WITHOUT_ALLOCATION, "it is on this host, but has no allocation"
        hypervisors = self._compute.hypervisors
        if other := [place for place in held if (its := self._root.get(place)) != root and its in hypervisors]:
            return (
                FindingKind.ALLOCATION_ELSEWHERE,
                f"it is on {server.node}, but has allocations on {provider_names(self._snapshot, other)}",
            )
        if server.wanted is not None and (text := _differences(server.wanted, _total(held), server.is_plain)):
            return FindingKind.WRONG_AMOUNTS, text
        return None

    def _finding_about(self, kind: FindingKind, uuid: str, server: AuditedServer, held: _Holding, why: str) -> Finding:
        """Creating missing allocations is safe; changing existing ones needs the operator's `--also`."""
        holding = self._right_holding(uuid, server, held)
        is_safe = kind is FindingKind.SERVER_WITHOUT_ALLOCATION
        if holding is None:
            advice = "nothing: the audit cannot tell which providers are right; migrate it, or shelve and unshelve it"
        else:
            units = ", ".join(f"{amount} {name}" for name, amount in sorted(_total(holding).items()))
            advice = f"{'' if is_safe else 'nothing; with --also UUID '}sets its allocation there to {units}"
        return Finding(
            kind,
            uuid,
            server.node or "",
            why,
            advice,
            None if holding is None else Repair.SET_HOLDING,
            is_safe=is_safe and holding is not None,
            holding=holding,
        )

    def _right_holding(self, uuid: str, server: AuditedServer, held: _Holding) -> _Holding | None:
        """The flavor's resources on the host's providers; None if they are incomplete, or fit in several ways."""
        if server.wanted is None or not server.is_plain or self._has_device(uuid) or server.node is None:
            return None
        if _total(held).keys() - server.wanted.keys() - _OWN_CLASSES:
            return None
        tree = self._trees.get(self._compute.nodes[server.node], [])
        holding: dict[str, dict[str, int]] = {}
        for name, amount in server.wanted.items():
            offering = [provider.uuid for provider in tree if name in provider.inventories]
            if len(offering) != 1:
                return None
            holding.setdefault(offering[0], {})[name] = amount
        return holding

    @cached_property
    def _trees(self) -> dict[str, list[AuditedProvider]]:
        trees: dict[str, list[AuditedProvider]] = {}
        for provider in self._snapshot.providers.values():
            trees.setdefault(self._root[provider.uuid], []).append(provider)
        return trees

    def _has_device(self, uuid: str) -> bool:
        return self._snapshot.accelerators is not None and uuid in self._snapshot.accelerators.instances


def _total(held: _Holding) -> dict[str, int]:
    total: dict[str, int] = {}
    for units in held.values():
        for name, amount in units.items():
            total[name] = total.get(name, 0) + amount
    return total


def _differences(wanted: Resources, held: Resources, is_whole: bool) -> str:
    wanted, held = _with_one_kind_of_processors(wanted), _with_one_kind_of_processors(held)
    names = wanted.keys() | (held.keys() & _OWN_CLASSES if is_whole else set())
    parts = [
        f"{held.get(name, 0)} {name} instead of {wanted.get(name, 0)}"
        for name in sorted(names)
        if held.get(name, 0) != wanted.get(name, 0)
    ]
    return f"it holds {', '.join(parts)}" if parts else ""


def _with_one_kind_of_processors(units: Resources) -> dict[str, int]:
    both = sum(units.get(name, 0) for name in _PROCESSORS)
    return {name: amount for name, amount in units.items() if name not in _PROCESSORS} | (
        {"VCPU": both} if both else {}
    )


#: Operations that take less are not stuck: a host that is away may return and continue them.
LONG = timedelta(hours=1)


def stuck_findings(snapshot: AuditSnapshot, grace: timedelta) -> Iterator[Finding]:
    if snapshot.compute is None:
        return
    patience = max(grace, LONG)
    yield from _stuck_servers(snapshot, snapshot.compute, patience)
    if snapshot.accelerators is not None:
        yield from _stuck_requests(snapshot, snapshot.accelerators, snapshot.compute, patience)


def _stuck_servers(snapshot: AuditSnapshot, compute: Compute, patience: timedelta) -> Iterator[Finding]:
    for uuid, busy in sorted(compute.busy.items()):
        away = _away(compute, busy.node)
        if snapshot.now - busy.since < patience or away is None:
            continue
        yield Finding(
            FindingKind.STUCK_SERVER,
            uuid,
            busy.node or "",
            f"it has been {busy.task} since {busy.since:%Y-%m-%d %H:%M} UTC or longer, and {away}",
            "nothing: start the compute service there; or delete the server, or force the service down and evacuate it"
            if busy.node
            else "nothing: see that a compute process runs and does its jobs; or delete the server",
        )


def _stuck_requests(
    snapshot: AuditSnapshot, accelerators: AuditedAccelerators, compute: Compute, patience: timedelta
) -> Iterator[Finding]:
    for one in sorted(accelerators.requests, key=lambda one: one.uuid):
        if not one.is_waiting or snapshot.now - one.changed_at < patience:
            continue
        away = _away(compute, one.host) or "its host has not reported it"
        yield Finding(
            FindingKind.STUCK_REQUEST,
            one.uuid,
            one.host,
            f"it has been waiting for its binding since {one.changed_at:%Y-%m-%d %H:%M} UTC, and {away}",
            "nothing: start the host's agent; or delete its server",
        )


def _away(compute: Compute, node: str | None) -> str | None:
    """Why nothing processes the jobs of `node`; None: its host is up."""
    if node is None:
        return "it is on no host"
    if node not in compute.nodes:
        return f"compute knows no host {node}"
    return f"{node} is down" if node in compute.down else None
