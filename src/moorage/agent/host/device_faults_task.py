"""Reports to the compute service which servers of this host have failed devices, so that their owners see it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from moorage.compute.client.compute_client import ComputeClient
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError

log = logging.getLogger(__name__)

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
