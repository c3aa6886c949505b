"""Accelerators: which servers have them, their providers, and the hosts' reports. Pure.

An object's age counts from the accelerator service's last write about it, and from the server's last change. A host
reports its devices and its attachments one after the other, and a difference between the two reports is no fault.
"""

from collections.abc import Iterator
from datetime import timedelta

from moorage.audit.model import (
    AuditedAccelerators,
    AuditedRequest,
    AuditSnapshot,
    Compute,
    Finding,
    FindingKind,
    Repair,
    joined_names,
)


def device_findings(snapshot: AuditSnapshot, grace: timedelta) -> Iterator[Finding]:
    if snapshot.accelerators is None:
        return
    yield from _parts(snapshot, snapshot.accelerators, grace)
    if snapshot.compute is not None:
        yield from _without_server(snapshot, snapshot.accelerators, snapshot.compute, grace)
        yield from _without_device(snapshot, snapshot.accelerators, snapshot.compute, grace)


def _without_server(
    snapshot: AuditSnapshot, accelerators: AuditedAccelerators, compute: Compute, grace: timedelta
) -> Iterator[Finding]:
    bound: dict[str, list[AuditedRequest]] = {}
    for one in accelerators.requests:
        if one.server not in compute.servers:
            bound.setdefault(one.server, []).append(one)
    for server, requests in sorted(bound.items()):
        if any(snapshot.now - one.changed_at < grace for one in requests):
            continue
        hosts = joined_names(sorted({one.host for one in requests}))
        can_be_freed = all(one.is_made_here for one in requests)
        yield Finding(
            FindingKind.DEVICE_WITHOUT_SERVER,
            server,
            hosts,
            f"compute knows no such server, and {joined_names(sorted(one.uuid for one in requests))} "
            f"{'is' if len(requests) == 1 else 'are'} bound for it",
            "nothing; with --also UUID frees its devices, which are then cleaned"
            if can_be_freed
            else f"nothing: they were plugged with it; is its domain still on {hosts}?",
            Repair.FREE_DEVICES if can_be_freed else None,
        )


def _without_device(
    snapshot: AuditSnapshot, accelerators: AuditedAccelerators, compute: Compute, grace: timedelta
) -> Iterator[Finding]:
    has = {(one.server, one.provider_uuid) for one in accelerators.requests}
    for provider in sorted(snapshot.providers.values(), key=lambda one: (one.name, one.uuid)):
        if not provider.is_device or provider.uuid not in accelerators.deployables:
            continue
        for uuid, units in sorted(provider.held.items()):
            server = compute.states.get(uuid)
            if server is None or not server.runs or snapshot.now - server.updated_at < grace:
                continue
            if (uuid, provider.uuid) not in has:
                amounts = ", ".join(f"{amount} {name}" for name, amount in sorted(units.items()))
                yield Finding(
                    FindingKind.SERVER_WITHOUT_DEVICE,
                    uuid,
                    provider.name,
                    f"it runs and has {amounts} allocated there, but no accelerator request is bound for it there",
                    "nothing: reboot it hard, and it is plugged again; if its guest is gone, too, rebuild or delete it",
                )


def _parts(snapshot: AuditSnapshot, accelerators: AuditedAccelerators, grace: timedelta) -> Iterator[Finding]:
    for part in sorted(accelerators.parts, key=lambda one: (one.name, one.uuid)):
        if snapshot.now - part.changed_at < grace:
            continue
        if part.attached:
            yield Finding(
                FindingKind.HANDLE_WITHOUT_REQUEST,
                part.uuid,
                part.name,
                f"{joined_names(list(part.attached))} attached, but no accelerator request has "
                f"{'it' if len(part.attached) == 1 else 'them'}",
                "nothing: its host's agent reports what is attached; check that it runs and reaches the service",
            )
        if part.provider_uuid not in snapshot.providers:
            yield Finding(
                FindingKind.DEVICE_WITHOUT_PROVIDER,
                part.uuid,
                part.name,
                "it has no resource provider"
                if part.provider_uuid is None
                else f"its resource provider {part.provider_uuid} is gone",
                "nothing: its host's agent creates it when it publishes next; check that it runs",
            )
