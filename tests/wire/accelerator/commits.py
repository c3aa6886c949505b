"""Commits of the accelerator service as points of a `Watch`: ``before commit RequestService.create_requests 1`` etc.

A commit has the name of the function that runs in its transaction.
"""

import threading

from sqlalchemy.engine.default import DefaultDialect

from moorage.db import session
from moorage.db.group_commit import _Writer
from tests.unit.accelerator.rig import Watch


def watched(watch: Watch, setattr_=setattr) -> None:
    """Watches the commits of all services in this process from now on. `setattr_` may be that of a monkeypatch."""
    commit, run, run_in_turn = DefaultDialect.do_commit, session._in_own_transaction, _Writer.run
    now = threading.local()

    def run_by_name(engine, work, **more):
        now.name = _name(work)
        try:
            return run(engine, work, **more)
        finally:
            now.name = ""

    def run_in_turn_by_name(writer, connection):
        now.name = _name(writer.work)
        return run_in_turn(writer, connection)

    def commit_at_a_point(dialect, connection):
        name, now.name = getattr(now, "name", ""), ""
        if not name:
            commit(dialect, connection)
            return
        with watch.event("commit", name):
            commit(dialect, connection)

    setattr_(session, "_in_own_transaction", run_by_name)
    setattr_(_Writer, "run", run_in_turn_by_name)
    setattr_(DefaultDialect, "do_commit", commit_at_a_point)


def _name(work) -> str:
    """The name of the function that runs in the transaction; empty for other services. `HostJobs` is the service's queue."""
    ours = work.__module__.startswith(("moorage.accelerator.", "moorage.jobs.host_jobs"))
    return work.__qualname__.partition(".<locals>")[0] if ours else ""
