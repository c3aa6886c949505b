"""Reports to the compute service: changes of domains that no job has made, and servers with failed devices.

A guest can shut itself down, write to its console or get another address from a DHCP server, and a domain can vanish.
`DomainsTask` calls the service when such a change has happened, and at least every `LONGEST_REPORT_PAUSE`.

`HostBoot` reboots the guests that ran when the host went down. It recognises a boot of the host by the kernel's boot
id, because a guest may also be off because it shut itself down while the agent was not running. It reboots them through
the compute service, so the reboot is an ordinary operation: it is refused during another operation, the server's
actions show it, and it attaches the server's devices again.

`DeviceFaultsTask` reports which servers of this host have failed devices, so that their owners see it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from moorage.agent.jobs.job_runner import MAX_CONSOLE_CHARACTERS
from moorage.agent.model import DomainPowerState
from moorage.agent.virt.driver import Domain, LearnedByMac, NoSuchDomain, VirtDriver
from moorage.compute.client.compute_client import ComputeClient
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError, NotFound
from moorage.durable import write_durably

log = logging.getLogger(__name__)

GONE = "gone"
#: Maximum number of consoles in one report, so that its body never exceeds the limit. The next report has the others.
MAX_CONSOLES = 4
#: Longest time between reports: the servers that compute expects here may have changed too.
LONGEST_REPORT_PAUSE = timedelta(seconds=60)

KERNEL_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")

_RUNNING_STATUS = "ACTIVE"


class HostBoot:
    """Reboots guests after the host was down. `boot_id_file`: the agent's file with the boot id of its last run."""

    def __init__(
        self, *, host: str, boot_id_file: Path, compute: ComputeClient, kernel_file: Path = KERNEL_BOOT_ID_FILE
    ) -> None:
        self._host = host
        self._boot_id_file = boot_id_file
        self._compute = compute
        self._current = kernel_file.read_bytes().strip()
        self._is_done = self._last_boot_id() in (None, self._current)

    def reboot_guests(self, expected: Mapping[str, str | None], domains: Mapping[str, Domain]) -> frozenset[str]:
        """Reboots the guests that ran when the host went down. Returns their servers, which the next report must omit.

        `expected`: the servers that compute expects on this host, as `ComputeClient.expected_servers` returns them.
        Does nothing after the first successful call; after an error, the next call continues.
        """
        rebooted: set[str] = set()
        if not self._is_done:
            for server, mark in expected.items():
                domain = domains.get(server)
                if mark is not None and domain is not None and domain.power is DomainPowerState.SHUTOFF:
                    rebooted |= self._reboot(server)
            log.info("the host was down; its guests are started", extra={"servers": sorted(rebooted)})
        if self._last_boot_id() != self._current:
            write_durably(self._boot_id_file, self._current)
        self._is_done = True
        return frozenset(rebooted)

    def _reboot(self, server: str) -> set[str]:
        """Reboots `server` if it is ACTIVE in compute, since it was then running when the host went down."""
        try:
            present = self._compute.server_here(self._host, server)
            if present is None or present.status != _RUNNING_STATUS:
                return set()
            self._compute.reboot_here(self._host, server)
        except (Conflict, NotFound) as refused:
            log.info("compute refused to reboot a server", extra={"server": server, "why": refused.message})
            return set()
        return {server}

    def _last_boot_id(self) -> bytes | None:
        """Boot id of the agent's last run; None if it never ran here."""
        try:
            return self._boot_id_file.read_bytes().strip()
        except FileNotFoundError:
            return None


class DomainsTask:
    """`boot` None: guests stay off after a boot of the host, and the task reports them as off."""

    def __init__(
        self,
        *,
        host: str,
        driver: VirtDriver,
        compute: ComputeClient,
        clock: Clock,
        period_s: float,
        boot: HostBoot | None = None,
    ) -> None:
        self.name = f"domains of {host}"
        self._host = host
        self._driver = driver
        self._compute = compute
        self._clock = clock
        self._period = timedelta(seconds=period_s)
        self._boot = boot
        self._reported_power: dict[str, str] = {}  # {uuid: power}
        self._reported_addresses: Mapping[str, LearnedByMac] = {}  # {uuid: addresses}
        self._consoles: dict[str, str] = {}  # {uuid: console text in the last report}
        self._leftovers: frozenset[str] = frozenset()
        self._reported_at: datetime | None = None

    def run_once(self) -> datetime:
        try:
            self._report_changes()
        except MoorageError as error:
            self._reported_at = None
            log.warning("the domains of this host could not be reported", extra={"why": error.message})
        return self._clock.now() + self._period

    def _report_changes(self) -> None:
        now = self._clock.now()
        domains = self._driver.domains()
        consoles = self._changed_consoles(domains)
        learned = self._driver.learned_addresses(domains)
        is_due = self._reported_at is None or now - self._reported_at >= LONGEST_REPORT_PAUSE
        has_addresses = is_due or learned != self._reported_addresses
        if not (consoles or has_addresses or _powers(domains) != self._reported_power):
            return
        expected = self._compute.expected_servers(self._host)
        # Read the domains again, after the answer: a server in it may have got its domain only after the first read.
        domains = self._driver.domains()
        rebooted = self._boot.reboot_guests(expected, domains) if self._boot else frozenset()
        powers = {
            server: (mark, domains[server].power.value if server in domains else GONE)
            for server, mark in expected.items()
            if mark is not None and server not in rebooted
        }
        addresses = {server: learned[server] for server in expected if server in learned} if has_addresses else {}
        self._compute.report_domains(self._host, powers, consoles, addresses)
        self._reported_power, self._reported_at, self._reported_addresses = _powers(domains), now, learned
        self._consoles = {uuid: text for uuid, text in {**self._consoles, **consoles}.items() if uuid in domains}
        self._warn_of_leftovers(frozenset(domains) - expected.keys())

    def _changed_consoles(self, domains: Mapping[str, Domain]) -> dict[str, str]:
        """{uuid: end of the console}, for up to `MAX_CONSOLES` consoles that differ from the last report."""
        written: dict[str, str] = {}
        for uuid in domains:
            if len(written) == MAX_CONSOLES:
                break
            try:
                text = self._driver.console(uuid)[-MAX_CONSOLE_CHARACTERS:]
            except NoSuchDomain:  # destroyed in between
                continue
            if text != self._consoles.get(uuid, ""):
                written[uuid] = text
        return written

    def _warn_of_leftovers(self, leftovers: frozenset[str]) -> None:
        """Logs domains that compute does not expect here. Does not destroy them: compute may be wrong, and the disk
        would be lost.
        """
        if leftovers - self._leftovers:
            log.warning(
                "this host has domains of servers that are not on this host for the compute service: they are left "
                "over, or kept until a move is confirmed; the agent does not change them",
                extra={"domains": sorted(leftovers)},
            )
        self._leftovers = leftovers


def _powers(domains: Mapping[str, Domain]) -> dict[str, str]:
    return {uuid: domain.power.value for uuid, domain in domains.items()}


#: Pause before a report is repeated: after a failure, and while there are failed devices, because a server may have
#: been busy, or its owner may have rebooted it.
_RETRY, _REPEAT = timedelta(seconds=10), timedelta(seconds=60)


class DeviceFaultsTask:
    """Reports when `failed` has changed; see `AcceleratorAgent.failed_devices`. The first report is also sent if
    nothing has failed, because devices may have been repaired while the agent was not running.
    """

    def __init__(
        self, host: str, failed: Callable[[], Mapping[str, Sequence[str]]], compute: ComputeClient, clock: Clock
    ) -> None:
        self.name = device_faults_topic(host)
        self._host = host
        self._failed = failed
        self._compute = compute
        self._clock = clock
        self._reported: Mapping[str, Sequence[str]] | None = None

    def run_once(self) -> datetime | None:
        failed = self._failed()
        if not failed and self._reported == failed:
            return None
        try:
            self._compute.report_device_faults(self._host, failed)
        except MoorageError as error:
            log.warning("failed devices of servers could not be reported", extra={"why": error.message})
            return self._clock.now() + _RETRY
        self._reported = failed
        return self._clock.now() + _REPEAT if failed else None


def device_faults_topic(host: str) -> str:
    """The wake-up topic for changes of failed devices."""
    return f"device faults of {host}"
