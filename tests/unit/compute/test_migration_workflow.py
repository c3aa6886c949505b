"""The steps of moves of servers: each workflow ends, whichever steps fail."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from moorage.agent.jobs.job_runner import JobRunner
from moorage.agent.jobs.server_build import NoAcceleration, ServerBuilder
from moorage.compute.model.migration_workflow import (
    EVENTS,
    HOST_STEPS,
    MAX_DESTINATIONS,
    REPEATED_STEPS,
    STEPS,
    Move,
    MoveKind,
    Where,
    retried_elsewhere,
)
from moorage.compute.model.servers import Flavor, VmState
from moorage.jobs.contract import JobKind


@pytest.mark.parametrize("kind", STEPS)
def test_every_path_through_a_workflow_ends(kind):
    """Assumes that a step that is repeated until it succeeds does succeed."""
    steps = STEPS[kind]

    def ends(name, seen):
        assert name not in seen, f"{kind} turns in a circle: {seen}"
        step = steps[name]
        following = {step.then} if name in REPEATED_STEPS else {step.then, step.otherwise}
        for one in following - {None}:
            ends(one, [*seen, name])

    for name in steps:
        ends(name, [])


@pytest.mark.parametrize("kind", STEPS)
def test_every_following_step_is_part_of_the_workflow(kind):
    for step in STEPS[kind].values():
        assert {step.then, step.otherwise} - {None} <= STEPS[kind].keys()
        assert step.where is Where.HERE or step.name in EVENTS


def test_agents_have_a_job_for_each_step_on_a_host():
    runner = JobRunner(None, ServerBuilder(None, NoAcceleration(), bool, frozenset, None), lambda: None)
    assert runner._works.keys() >= HOST_STEPS


@pytest.mark.parametrize("kind", STEPS)
def test_every_step_has_an_alternative_that_does_not_need_its_host(kind):
    """A step has no alternative only if the server itself is on that host."""
    for step in STEPS[kind].values():
        if step.without_host is None:
            assert step.where in (Where.HERE, Where.SOURCE) or step.name == "take-over"
        else:
            assert STEPS[kind][step.without_host].where not in (step.where, Where.ELSEWHERE)


def an_evacuation(**values):
    flavor = Flavor("1", "small", 1, 1, 1)
    now = datetime(2026, 3, 1, tzinfo=UTC)
    move = Move(
        "a", 1, "s", MoveKind.EVACUATION, "pre-migrating", JobKind.BUILD_AGAIN, True, "one", "two", None, VmState.ACTIVE,
        flavor, flavor, None, None, {}, "u", "p", now, now,
    )  # fmt: skip
    return replace(move, **values)


def test_an_evacuation_is_repeated_to_another_host_a_limited_number_of_times():
    move, tried = an_evacuation(), 0
    while move is not None:
        tried += 1
        other = retried_elsewhere(move, "b", move.created_at)
        if other is not None:
            assert (other.status, other.step, other.dest_host) == ("accepted", None, None)
            assert (other.source_host, other.old_flavor, other.details["died"][-1]) == ("one", move.old_flavor, "two")
            other = replace(other, step=JobKind.BUILD_AGAIN, dest_host="two")
        move = other
    assert tried == MAX_DESTINATIONS


@pytest.mark.parametrize("values", [{"wanted_host": "two"}, {"details": {"abandoned": True}}, {"step": JobKind.CLEAN}])
def test_an_evacuation_to_a_requested_host_or_after_its_end_is_not_repeated(values):
    assert retried_elsewhere(an_evacuation(**values), "b", datetime(2026, 3, 1, tzinfo=UTC)) is None
