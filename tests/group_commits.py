"""Waits for the queue of a `GroupCommit`, so that a test decides which requests are written together."""

import threading

from moorage.db.group_commit import GroupCommit


def until_waiting(queue: GroupCommit, number: int) -> None:
    """Returns when so many requests are in no group yet. One that waits for its turn with its group is among them."""
    for _ in range(10_000):
        if len(queue._waiting) == number:
            return
        threading.Event().wait(0.001)
    raise AssertionError(f"{len(queue._waiting)} requests wait instead of {number}")
