"""The task that ends what is only kept for a while: deleted servers that can be restored, shelved ones on their hosts."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import Engine

from moorage.compute.model import lifecycle
from moorage.compute.model.servers import VmState
from moorage.compute.servers.delete_service import DeleteService
from moorage.compute.servers.operate_service import OperateService
from moorage.compute.store import server_store
from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError
from moorage.db.transactions import read

log = logging.getLogger(__name__)

#: As whom the task asks: what it does is noted under this name.
RECLAIMER = Caller("moorage", "", frozenset({"admin"}))
#: What became due is done so much later at most.
PERIOD_S = 60.0


class ReclaimTask:
    """`after_s`: so long a deleted server can be restored; 0: there are none, but those of a former setting.

    `offload_after_s`: so long a shelved one stays on its host; negative: always.
    """

    name = "compute.reclaim"

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        deletion: DeleteService,
        operations: OperateService,
        *,
        after_s: float,
        offload_after_s: float = 0,
        period_s: float = PERIOD_S,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._deletion = deletion
        self._operations = operations
        self._after = timedelta(seconds=after_s)
        self._offload_after = timedelta(seconds=offload_after_s)
        self._period = timedelta(seconds=period_s)

    def run_once(self) -> datetime | None:
        """A deletion that was begun is not begun again: `DeleteService.delete` sees to that.

        Where nothing is kept for a while it is over with what was left of a time when it was.
        """
        due = self._each(VmState.SOFT_DELETED, self._after, self._delete)
        if self._offload_after >= timedelta(0):
            due += self._each(VmState.SHELVED, self._offload_after, self._offload)
        return self._clock.now() + self._period if self._after or self._offload_after > timedelta(0) or due else None

    def _each(self, state: VmState, after: timedelta, end: Callable[[str], object]) -> int:
        """How many were due."""
        with read(self._engine) as connection:
            due = server_store.parked_until(connection, state, self._clock.now() - after)
        for server_id in due:
            try:
                end(server_id)
            except MoorageError as error:
                log.warning("a server stays as it is", extra={"server": server_id, "reason": error.message})
        return len(due)

    def _delete(self, server_id: str) -> None:
        self._deletion.delete(RECLAIMER, "", server_id, at_once=True)

    def _offload(self, server_id: str) -> None:
        self._operations.operate(RECLAIMER, "", server_id, lifecycle.SHELVE_OFFLOAD)
