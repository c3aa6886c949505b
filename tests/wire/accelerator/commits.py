"""Commits of the accelerator service as points of a `Watch`: ``before commit RequestService.create_requests 1`` and so on.

Not a test. A commit is called by who wrote what it makes last: the function that is run in the transaction.
"""

import threading

from moorage.db import prepared_transactions
from tests.unit.accelerator.rig import Watch


def watched(watch: Watch, setattr_=setattr) -> None:
    """Of all services in this process, from now on. `setattr_` may be that of a monkeypatch."""
    commit, run = prepared_transactions._Session.commit, prepared_transactions.PreparedDatabase.in_transaction
    now = threading.local()

    def in_transaction(database, work, **more):
        before, now.name = getattr(now, "name", ""), work.__qualname__.partition(".<locals>")[0]
        try:
            return run(database, work, **more)
        finally:
            now.name = before

    def commit_at_a_point(session):
        with watch.event("commit", now.name):
            commit(session)

    setattr_(prepared_transactions.PreparedDatabase, "in_transaction", in_transaction)
    setattr_(prepared_transactions._Session, "commit", commit_at_a_point)
