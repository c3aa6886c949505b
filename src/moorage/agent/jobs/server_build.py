"""Builds and destroys servers on this host: attaches the devices and starts the domain, or the reverse.

    build:   plug -> bind -> spawn    after a failure: destroy, unplug, and report the reason
    rebuild: plug -> bind -> rebuild  its devices are plugged already; a failure leaves everything as it is
    attach:  plug -> bind -> spawn    only if the domain's devices differ from the server's
    destroy: destroy -> unplug        in this order: another tenant must not get a device that a guest still uses

`bind`: ports of a Neutron that are devices are bound to those that were plugged for them.

Each may run again after a crash at any line: `plug` returns the same devices for the same server, `spawn` keeps an
existing domain, and `destroy` and `unplug` do nothing the second time.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from typing import Protocol, TypeVar

import msgspec

from moorage.agent.jobs.keep_alive import KeepAlive, run_keeping_alive
from moorage.agent.model import Guest, config_drive_files
from moorage.agent.virt.driver import DomainInterface, DomainSpec, VirtDriver
from moorage.core.errors import Conflict, MoorageError, message_for_tenants
from moorage.jobs.contract import (
    DEVICE,
    OVS,
    PORT_REFUSED_CODE,
    InterfaceJob,
    InterfacePayload,
    PortDevice,
    RebuildJob,
    ServerJob,
    ServerPayload,
    ServerRef,
    device_group,
    is_device_group,
)

log = logging.getLogger(__name__)

T = TypeVar("T")


class Acceleration(Protocol):
    """The functions of the library `os_acc`, as its specification defines them."""

    def initialize(self) -> None:
        """Waits until all devices are discovered and their traits are published."""
        ...

    def plug(
        self,
        instance_info: Mapping[str, object],
        selected_rp: Mapping[str, str | Sequence[str]],
        flavor_extra_specs: Mapping[str, str],
    ) -> Sequence[Mapping[str, str]]:
        """Returns one entry per requested accelerator; see `os_acc.plug`."""
        ...

    def unplug(self, instance_info: Mapping[str, object]) -> int:
        """Returns the number of released accelerators."""
        ...


class NoAcceleration:
    """`Acceleration` for a host without an accelerator agent."""

    def initialize(self) -> None:
        return

    def plug(
        self,
        instance_info: Mapping[str, object],
        selected_rp: Mapping[str, str | Sequence[str]],
        flavor_extra_specs: Mapping[str, str],
    ) -> Sequence[Mapping[str, str]]:
        raise BuildFailed("this host runs no accelerator agent, so it has no accelerators to attach")

    def unplug(self, instance_info: Mapping[str, object]) -> int:
        return 0


#: (server id, port id, device of the host) -> the port, of the kind `DEVICE`, bound to the device. None: it is no port
#: of the server any more. May be repeated. Raises `Conflict`.
BindDevice = Callable[[str, str, PortDevice], InterfacePayload | None]


#: Whether a flavor with these extra specs requests accelerators.
RefersToAccelerators = Callable[[Mapping[str, str]], bool]


class JobLost(MoorageError):
    """The job's lease has ended and another worker has it: do not touch its server any more."""

    code = "agent.job_lost"


class WorkFailed(MoorageError):
    """A job failed. What it had done was undone, or the message says what could not be."""

    is_left = False  #: whether something could not be undone: see `JobFailure`


class BuildFailed(WorkFailed):
    """The server could not be built."""

    code = "agent.build_failed"


class AttachFailed(WorkFailed):
    """The interface could not be attached."""

    code = "agent.attach_failed"


@dataclass(frozen=True)
class BuiltServer:
    devices: tuple[Mapping[str, str], ...]  #: as `os_acc.plug` returned them


class ServerBuilder:
    """`ancestor_names`: names of the ancestors of providers with these uuids, such as a device's NUMA node."""

    def __init__(
        self,
        driver: VirtDriver,
        acceleration: Acceleration,
        refers_to_accelerators: RefersToAccelerators,
        ancestor_names: Callable[[Iterable[str]], frozenset[str]],
        bind_device: BindDevice,
        *,
        keep_alive_period_s: float = 10.0,
    ) -> None:
        self._driver = driver
        self._acceleration = acceleration
        self._refers_to_accelerators = refers_to_accelerators
        self._ancestor_names = ancestor_names
        self._bind_device = bind_device
        self._keep_alive_period_s = keep_alive_period_s

    def build(self, job: ServerJob, keep_alive: KeepAlive, *, start: bool = True) -> BuiltServer:
        """Raises `BuildFailed`, which says whether parts are left, and `JobLost`, which undoes nothing."""
        try:
            devices = self._plug_devices(job, keep_alive)
            if devices:  # attaching them may have taken long
                keep_alive()
            interfaces = self._bind_interfaces(job, devices, keep_alive)
            spec = self._spec(job, devices, interfaces)
            self.run_keeping_alive(lambda: self._driver.spawn(spec, start=start), keep_alive)
        except JobLost:
            raise
        except Exception as error:  # any failed build must be undone; os_acc's errors are no `MoorageError`s
            sentence, code = failure_report(error)
            log.warning("build failed", extra={"server": job.server.id, "why": sentence})
            leftovers = self._undo(job, keep_alive)
            failed = BuildFailed("; ".join([sentence, *leftovers]), code=code)
            failed.is_left = bool(leftovers)
            raise failed from error
        return BuiltServer(devices)

    def rebuild(self, job: RebuildJob, keep_alive: KeepAlive) -> BuiltServer:
        """Rebuilds the server. The devices stay attached: the driver stops the guest before it removes the disk."""
        devices = self._plug_devices(job, keep_alive)
        interfaces = self._bind_interfaces(job, devices, keep_alive)
        spec = self._spec(job, devices, interfaces)
        self.run_keeping_alive(lambda: self._driver.rebuild(spec, key=job.key, start=job.start), keep_alive)
        return BuiltServer(devices)

    def attach(self, job: ServerJob, keep_alive: KeepAlive) -> BuiltServer:
        """Attaches the server's devices to its domain, before a start; turns off a guest that has others."""
        if not self._refers_to_accelerators(job.server.flavor.extra_specs):
            return BuiltServer(())
        devices = self._plug_devices(job, keep_alive)
        bound = self._bind_interfaces(job, devices, keep_alive)
        present = self._driver.domains().get(job.server.id)
        if present is not None:
            pci, mdevs = _split_devices(devices)
            interfaces = _with_functions(present.spec.interfaces, [one for one in bound if one.device is not None])
            spec = replace(present.spec, pci_addresses=pci, mdev_uuids=mdevs, interfaces=interfaces)
            if spec != present.spec:
                self.run_keeping_alive(lambda: self._driver.spawn(spec, start=False), keep_alive)
        return BuiltServer(devices)

    def remove_functions(self, job: InterfaceJob, keep_alive: KeepAlive) -> None:
        """Takes the functions of network cards from the domain that the server does not have any more.

        They stay plugged, because the server's allocation has them.
        """
        present = self._driver.domains().get(job.server.id)
        if present is None:
            return
        kept = {one.mac.lower() for one in job.server.interfaces or () if one.kind == DEVICE}
        interfaces = tuple(one for one in present.spec.interfaces if one.device is None or one.mac.lower() in kept)
        spec = replace(present.spec, interfaces=interfaces)
        if spec != present.spec or job.restarts:
            self.run_keeping_alive(lambda: self._driver.spawn(spec, start=job.restarts), keep_alive)

    def detach(self, server: ServerRef, keep_alive: KeepAlive) -> int:
        """Releases the devices of a domain that is off; returns their number."""
        return self.run_keeping_alive(
            lambda: self._acceleration.unplug(_instance_info(server.id, server.name)), keep_alive
        )

    def destroy(self, server: ServerRef, keep_alive: KeepAlive) -> int:
        """Returns the number of released devices. A server that is not on this host is no error."""
        self.run_keeping_alive(lambda: self._driver.destroy(server.id), keep_alive)
        return self.detach(server, keep_alive)

    def _plug_devices(self, job: ServerJob, keep_alive: KeepAlive) -> tuple[Mapping[str, str], ...]:
        server = job.server
        if not self._refers_to_accelerators(server.flavor.extra_specs):
            return ()
        instance_info = _instance_info(server.id, server.name) | {
            "project_id": server.project_id,
            "user_id": server.user_id,
            "image_id": server.image_id,
        }
        selected_rp: dict[str, str | Sequence[str]] = {suffix: list(uuids) for suffix, uuids in job.selected_rp.items()}
        plugged = self.run_keeping_alive(
            lambda: self._acceleration.plug(instance_info, selected_rp, dict(server.flavor.extra_specs)), keep_alive
        )
        return tuple(plugged)

    def _bind_interfaces(
        self, job: ServerJob, devices: Sequence[Mapping[str, str]], keep_alive: KeepAlive
    ) -> tuple[DomainInterface, ...]:
        """Has the ports bound that are devices; returns all interfaces of the server. Raises `BuildFailed`."""
        plugged = {device["group"]: device for device in devices if "group" in device}
        interfaces = []
        for one in job.server.interfaces or ():
            if one.kind != DEVICE:
                interfaces.append(domain_interface(one))
                continue
            device = plugged.get(device_group(one.port_id))
            if device is None:
                raise BuildFailed(
                    f"the device of port {one.port_id} is no virtual function with a physical network: set functions "
                    "and physical_network in the device spec of the network card",
                    code=PORT_REFUSED_CODE,
                )
            chosen = PortDevice(device["pci_id"], device["physical_network"])
            bind = partial(self._bind_device, job.server.id, one.port_id, chosen)
            try:
                bound = self.run_keeping_alive(bind, keep_alive)
            except Conflict as refused:
                raise BuildFailed(message_for_tenants(refused), code=PORT_REFUSED_CODE) from refused
            if bound is not None:
                interfaces.append(domain_interface(bound, chosen.address))
        return tuple(interfaces)

    def spec_of(self, job: ServerJob) -> DomainSpec:
        """The definition of a server without devices."""
        return self._spec(job, (), tuple(domain_interface(one) for one in job.server.interfaces or ()))

    def _spec(
        self, job: ServerJob, devices: Sequence[Mapping[str, str]], interfaces: tuple[DomainInterface, ...]
    ) -> DomainSpec:
        server = job.server
        pci, mdevs = _split_devices(devices)
        selected = [uuid for uuids in job.selected_rp.values() for uuid in uuids]
        return DomainSpec(
            uuid=server.id,
            name=server.name,
            vcpus=server.flavor.vcpus,
            memory_mb=server.flavor.ram_mb,
            disk_gb=server.flavor.disk_gb,
            image_id=server.image_id,
            pci_addresses=pci,
            mdev_uuids=mdevs,
            interfaces=interfaces,
            provider_ancestors=self._ancestor_names(selected),
            ephemeral_gb=server.flavor.ephemeral_gb,
            swap_mb=server.flavor.swap_mb,
            project_id=server.project_id,
            flavor=server.flavor.name,
            config_drive=_config_drive(server),
            settings=tuple(sorted(job.settings.items())),
        )

    def _undo(self, job: ServerJob, keep_alive: KeepAlive) -> list[str]:
        """Removes the parts of a failed build. Returns one sentence per part that could not be removed.

        The server keeps its devices while its domain may use them. Compute requests another clean-up later, for example
        after an operator has freed space on a full disk.
        """
        server = job.server
        try:
            self.run_keeping_alive(lambda: self._driver.destroy(server.id), keep_alive)
            if self._refers_to_accelerators(server.flavor.extra_specs):
                self.run_keeping_alive(
                    lambda: self._acceleration.unplug(_instance_info(server.id, server.name)), keep_alive
                )
        except JobLost:
            raise
        except Exception as error:  # the report's main error is that of the build, not this one
            log.exception("a failed build could not be undone", extra={"server": server.id})
            return [f"and it could not be undone: {failure_report(error)[0]}"]
        return []

    def run_keeping_alive(self, call: Callable[[], T], keep_alive: KeepAlive) -> T:
        return run_keeping_alive(call, keep_alive, self._keep_alive_period_s)


def _split_devices(devices: Sequence[Mapping[str, str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(PCI addresses, uuids of mediated devices), as in a guest's definition. Without those for ports: a guest has such
    a device as an interface, or, if the port is gone, not at all.
    """
    pci = tuple(one["pci_id"] for one in devices if "mdev" not in one and not is_device_group(one.get("group", "")))
    return pci, tuple(device["mdev"] for device in devices if "mdev" in device)


def _with_functions(
    present: Sequence[DomainInterface], functions: Sequence[DomainInterface]
) -> tuple[DomainInterface, ...]:
    """The interfaces of a domain, with those functions of network cards that the server has now, in the same places."""
    now = {one.mac: one for one in functions}
    kept = [one if one.device is None else now.pop(one.mac, None) for one in present]
    return (*(one for one in kept if one is not None), *now.values())


def domain_interface(interface: InterfacePayload, device: str | None = None) -> DomainInterface:
    """`device`: PCI address of the function that is the interface."""
    if device is not None:
        return DomainInterface(interface.mac, "", is_bridge=False, vlan=interface.segmentation_id, device=device)
    is_ovs = interface.kind == OVS
    return DomainInterface(
        mac=interface.mac,
        source=interface.physical_network,
        is_bridge=interface.kind != "local",
        vlan=interface.segmentation_id,
        addresses=() if is_ovs else _ipv4(interface),
        ovs_port=interface.port_id if is_ovs else None,
        mtu=(interface.mtu or None) if is_ovs else None,
    )


def _ipv4(interface: InterfacePayload) -> tuple[str, ...]:
    return tuple(one.address for one in interface.addresses if ip_address(one.address).version == 4)


def _instance_info(uuid: str, name: str) -> dict[str, object]:
    return {"uuid": uuid, "name": name}


def failure_report(error: Exception) -> tuple[str, str]:
    """(sentence, code) for a job's report, which the server's owner reads.

    The errors of os_acc are not `MoorageError`s, but have a message and a code too. The text of any other error may
    contain a path, a URL or a secret, so the owner gets only a reference to an entry in this host's log.
    """
    if isinstance(error, MoorageError):
        if (message_for_owner := message_for_tenants(error)) != error.message:
            log.warning("another service failed", extra={"why": error.message})
        return message_for_owner, error.error_code
    message, code = getattr(error, "message", None), getattr(error, "code", None)
    if isinstance(message, str) and isinstance(code, str):
        return message, code
    reference = f"err-{secrets.token_hex(5)}"
    log.error("unforeseen error", extra={"reference": reference, "why": repr(error)}, exc_info=error)
    return (
        f"Unexpected error on the host; its log has the cause under {reference}, for the operator",
        "agent.failed",
    )


def _config_drive(server: ServerPayload) -> dict[str, bytes] | None:
    if server.guest is None:
        return None
    return config_drive_files(
        Guest(
            uuid=server.id,
            name=server.name,
            project_id=server.project_id,
            instance_name=server.instance_name,
            flavor=server.flavor.name,
            interfaces=server.interfaces or (),
            **msgspec.structs.asdict(server.guest),
        )
    )
