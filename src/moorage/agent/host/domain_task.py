"""Reports domains that changed by themselves to the compute service, and reboots guests after the host was down.

Guests shut themselves down and write to their consoles; domains vanish. `DomainsTask` calls the service only when
something changed here, and every `ASK_ANYWAY`.

`HostBoot` reboots guests that ran when the host went down. It recognises a boot of the host by the kernel's boot id,
because a guest that is off may also have shut itself down while only the agent was away. It reboots them through the
compute service, so that a start after a power cut is an operation like any other: refused during another operation,
visible among the server's actions, and with its devices plugged again.
"""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from moorage.agent.jobs.job_runner import MAX_CONSOLE_CHARACTERS
from moorage.agent.model.power import DomainPowerState
from moorage.agent.virt.driver import Domain, NoSuchDomain, VirtDriver
from moorage.compute.client.compute_client import ComputeClient
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError, NotFound
from moorage.durable import write_durably

log = logging.getLogger(__name__)

GONE = "gone"
#: Consoles in one report: this many always fit into a body, even at their full length. The others follow in the next report.
CONSOLES_AT_ONCE = 4
#: Longest time without a report: the service's servers may have changed while this agent was away.
ASK_ANYWAY = timedelta(seconds=60)


KERNELS_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_RUNNING_STATUS = "ACTIVE"


class HostBoot:
    """Reboots guests after the host was down. `remembered` is a file of the agent with the boot id of its last run."""

    def __init__(self, *, host: str, remembered: Path, compute: ComputeClient, current: Path = KERNELS_BOOT_ID) -> None:
        self._host = host
        self._remembered = remembered
        self._compute = compute
        self._current = current.read_bytes().strip()
        self._is_over = self._last() in (None, self._current)

    def reboot_guests(self, expected: Mapping[str, str | None], domains: Mapping[str, Domain]) -> frozenset[str]:
        """Reboot the guests that ran when the host went down; returns their servers, whose domains need no report now.

        Does nothing after the first successful call; the next call continues one that failed.
        """
        resumed: set[str] = set()
        if not self._is_over:
            for server, mark in expected.items():
                domain = domains.get(server)
                if mark is not None and domain is not None and domain.power is DomainPowerState.SHUTOFF:
                    resumed |= self._reboot(server)
            log.info("the host was down; its guests are started", extra={"servers": sorted(resumed)})
        if self._last() != self._current:
            write_durably(self._remembered, self._current)
        self._is_over = True
        return frozenset(resumed)

    def _reboot(self, server: str) -> set[str]:
        """Reboot `server` if compute believes that it runs; otherwise it was off before."""
        try:
            present = self._compute.server_here(self._host, server)
            if present is None or present.status != _RUNNING_STATUS:
                return set()
            self._compute.reboot_here(self._host, server)
        except (Conflict, NotFound) as refused:
            log.info("compute refused to reboot a server", extra={"server": server, "why": refused.message})
            return set()
        return {server}

    def _last(self) -> bytes | None:
        """The remembered boot id; None: this agent never ran here."""
        try:
            return self._remembered.read_bytes().strip()
        except FileNotFoundError:
            return None


class DomainsTask:
    """`boot` None: after a boot of the host its guests stay off, and the task reports them as off."""

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
        self._reported_power: dict[str, str] = {}  # uuid -> power
        self._consoles: dict[str, str] = {}  # uuid -> console text sent last
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
        is_time = self._reported_at is None or now - self._reported_at >= ASK_ANYWAY
        if not (consoles or is_time or _powers(domains) != self._reported_power):
            return
        expected = self._compute.expected_servers(self._host)
        # Read the domains again: one that was made before the answer came must not be reported as gone.
        domains = self._driver.domains()
        resumed = self._boot.reboot_guests(expected, domains) if self._boot else frozenset()
        looks = {
            server: (mark, domains[server].power.value if server in domains else GONE)
            for server, mark in expected.items()
            if mark is not None and server not in resumed
        }
        self._compute.report_domains(self._host, looks, consoles)
        self._reported_power, self._reported_at = _powers(domains), now
        self._consoles = {uuid: text for uuid, text in {**self._consoles, **consoles}.items() if uuid in domains}
        self._warn_of_leftovers(frozenset(domains) - expected.keys())

    def _changed_consoles(self, domains: Mapping[str, Domain]) -> dict[str, str]:
        """{uuid: end of the console}, for consoles that differ from the last report."""
        written: dict[str, str] = {}
        for uuid in domains:
            if len(written) == CONSOLES_AT_ONCE:
                break
            try:
                text = self._driver.console(uuid)[-MAX_CONSOLE_CHARACTERS:]
            except NoSuchDomain:  # destroyed in between
                continue
            if text != self._consoles.get(uuid, ""):
                written[uuid] = text
        return written

    def _warn_of_leftovers(self, leftovers: frozenset[str]) -> None:
        """Only a warning: a service that does not know a server may be wrong, and destroying the domain would lose its
        disk.
        """
        if leftovers - self._leftovers:
            log.warning(
                "this host has domains of servers that the compute service does not have here: left over, or kept until a "
                "move is confirmed; they are left alone",
                extra={"domains": sorted(leftovers)},
            )
        self._leftovers = leftovers


def _powers(domains: Mapping[str, Domain]) -> dict[str, str]:
    return {uuid: domain.power.value for uuid, domain in domains.items()}
