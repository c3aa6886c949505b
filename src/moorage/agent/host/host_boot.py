"""Guests that ran when their host went down: rebooted when it is back.

Whether the host was down, the kernel's boot id says: a guest that is off may just as well have shut itself down while
only the agent was away. They are rebooted through the compute service, so that a start after a power cut is an operation like
any other: refused where something else is done to the server, seen among its actions, with its devices plugged anew.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from moorage.agent.model.power import DomainPowerState
from moorage.agent.virt.driver import Domain
from moorage.compute.client.compute_client import ComputeClient
from moorage.core.errors import Conflict, NotFound
from moorage.durable import write_durably

log = logging.getLogger(__name__)

KERNELS_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RAN = "ACTIVE"


class HostBoot:
    """`remembered` is a file of the agent's: the boot id of its last look."""

    def __init__(self, *, host: str, remembered: Path, compute: ComputeClient, current: Path = KERNELS_BOOT_ID) -> None:
        self._host = host
        self._remembered = remembered
        self._compute = compute
        self._current = current.read_bytes().strip()
        self._is_over = self._last() in (None, self._current)

    def resume(self, expected: Mapping[str, str | None], domains: Mapping[str, Domain]) -> frozenset[str]:
        """Servers that are being rebooted now: how their domains look is no news. After the first call none are.

        What fails in the middle is done at the next call.
        """
        resumed: set[str] = set()
        if not self._is_over:
            for server, mark in expected.items():
                domain = domains.get(server)
                if mark is not None and domain is not None and domain.power is DomainPowerState.SHUTOFF:
                    resumed |= self._rebooted(server)
            log.info("the host was down; its guests are started", extra={"servers": sorted(resumed)})
        if self._last() != self._current:
            write_durably(self._remembered, self._current)
        self._is_over = True
        return frozenset(resumed)

    def _rebooted(self, server: str) -> set[str]:
        """Only one that compute believes to run: others were off before."""
        try:
            present = self._compute.server_here(self._host, server)
            if present is None or present.status != _RAN:
                return set()
            self._compute.reboot_here(self._host, server)
        except (Conflict, NotFound) as refused:
            log.info("a server is not started after all", extra={"server": server, "why": refused.message})
            return set()
        return {server}

    def _last(self) -> bytes | None:
        """None: this agent was never here."""
        try:
            return self._remembered.read_bytes().strip()
        except FileNotFoundError:
            return None
