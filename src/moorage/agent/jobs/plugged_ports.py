"""Waits until a Neutron has connected what this host attached, before a guest runs: a guest that asks too early for its
address may not ask again.
"""

import logging
from datetime import timedelta

from moorage.agent.virt.driver import VirtError
from moorage.compute.client.compute_client import ComputeClient
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError

log = logging.getLogger(__name__)

_POLL_S = 0.5
#: Neutron itself is asked only this often: it tells compute by itself, unless an event was lost.
_REFRESH = timedelta(seconds=5)


class PluggedPorts:
    """`timeout_s` 0: guests do not wait."""

    def __init__(self, host: str, compute: ComputeClient, clock: Clock, timeout_s: float) -> None:
        self._host = host
        self._compute = compute
        self._clock = clock
        self._timeout_s = timeout_s

    def wait(self, server_id: str) -> None:
        """Raises `VirtError` after `timeout_s`.

        Does not wait for a server that compute has on another host: its ports follow when it has arrived here.
        """
        if not self._timeout_s:
            return
        begin = self._clock.now()
        ask_at = begin + _REFRESH
        while True:
            now = self._clock.now()
            is_due = now >= ask_at
            if is_due:
                ask_at = now + _REFRESH
            unplugged = self._unplugged(server_id, refresh=is_due)
            if not unplugged:
                return
            if now - begin >= timedelta(seconds=self._timeout_s):
                raise VirtError(
                    f"Neutron has not plugged {', '.join(unplugged)} within {self._timeout_s:g} s; see the log of its "
                    "agent on this host"
                )
            self._clock.sleep(_POLL_S)

    def _unplugged(self, server_id: str, *, refresh: bool) -> tuple[str, ...]:
        try:
            here = self._compute.server_here(self._host, server_id, refresh=refresh)
        except MoorageError as error:  # it may answer the next time
            log.info(
                "compute does not say whether ports are plugged", extra={"server": server_id, "why": error.message}
            )
            return ("its ports, as far as compute says",)
        return () if here is None else here.unplugged_ports
