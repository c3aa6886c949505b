"""A job: work for a host or a worker, and the states it goes through.

Not here: where jobs are kept (`moorage.jobs.store`) and what shortens the wait for them (`moorage.jobs.wakeups`).
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from moorage.core.states import transition_table


class JobState(StrEnum):
    READY = "ready"
    CLAIMED = "claimed"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


#: A claim whose lease is over is claimed again: a new epoch of the same state.
TRANSITIONS = transition_table(
    "a job",
    {
        JobState.READY: [JobState.CLAIMED, JobState.CANCELLED],
        JobState.CLAIMED: [
            JobState.CLAIMED,
            JobState.READY,
            JobState.DONE,
            JobState.FAILED,
            JobState.CANCELLED,
        ],
    },
)

#: The states of a job that is still to be worked on; it holds back the younger jobs of its key.
OPEN = frozenset(TRANSITIONS.allowed)

#: In `Job.result` under ``code`` when a job was given up after its last attempt.
ATTEMPTS_CODE = "jobs.attempts"

#: `MoorageError.error_code` for a report from a claim that is no longer the newest.
FENCED_CODE = "jobs.fenced"


@dataclass(frozen=True, slots=True)
class NewJob:
    """Work to be enqueued. The same `id` again is the same job."""

    id: str
    queue: str  #: who may claim it: a host's name, or ``compute-build``
    kind: str  #: ``build``, ``destroy`` ...
    key: str  #: jobs of one key run one at a time and in order, across all queues
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    queue: str
    kind: str
    key: str
    payload: dict[str, Any]
    state: JobState
    attempt: int  #: how often it was claimed
    epoch: int  #: grows with each claim; reports with an older one are refused
    #: CLAIMED: when others may take it. READY: not before this moment (None: at once).
    lease_until: datetime | None
    worker: str | None  #: who claimed it last
    created_at: datetime
    finished_at: datetime | None
    result: dict[str, Any] | None
