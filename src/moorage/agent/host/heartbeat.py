"""The agent's sign of life to the compute service."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from moorage.compute.client.compute_client import ComputeClient
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError
from moorage.jobs.poller_election import Turns

log = logging.getLogger(__name__)

#: After so many periods a heartbeat is sent, whatever else compute has heard: it may have been told something else.
AT_LEAST_EACH = 6


class HeartbeatTask:
    """Says that the host is there, and what it is. One beat that fails is made up for by the next.

    To have asked for jobs, and to have got an answer, is a sign of life too: then nothing is sent, unless the facts
    have changed.
    """

    shows_life = True

    def __init__(
        self,
        host: str,
        facts: Callable[[], Mapping[str, Any]],
        compute: ComputeClient,
        turns: Turns,
        clock: Clock,
        period_s: float,
    ) -> None:
        self.name = f"heartbeat of {host}"
        self._host = host
        self._facts = facts
        self._compute = compute
        self._turns = turns
        self._clock = clock
        self._period = timedelta(seconds=period_s)
        self._sent: tuple[Mapping[str, Any], datetime] | None = None

    def run_once(self) -> datetime:
        try:
            facts = self._facts()
            if self._is_needed(facts):
                self._compute.register_host(self._host, **facts)
                self._sent = facts, self._clock.now()
        except MoorageError as error:
            log.warning("no heartbeat: the compute service does not take it", extra={"why": error.message})
        return self._clock.now() + self._period

    def _is_needed(self, facts: Mapping[str, Any]) -> bool:
        now, answered = self._clock.now(), self._turns.answered_at
        if answered is None or now - answered > self._period or self._sent is None:
            return True
        sent, at = self._sent
        return sent != facts or now - at >= AT_LEAST_EACH * self._period
