"""The steps of moves: each plan comes to an end, whatever fails."""

import pytest

from moorage.agent.build import Builder, NoAcceleration
from moorage.agent.job_runner import JobRunner
from moorage.compute.moves import EVENTS, HOST_STEPS, STEPS, UNTIL_DONE, Where


@pytest.mark.parametrize("kind", STEPS)
def test_every_way_through_a_plan_ends(kind):
    """What is repeated until it succeeds succeeds in the end."""
    steps = STEPS[kind]

    def ends(name, seen):
        assert name not in seen, f"{kind} turns in a circle: {seen}"
        step = steps[name]
        following = {step.then} if name in UNTIL_DONE else {step.then, step.otherwise}
        for one in following - {None}:
            ends(one, [*seen, name])

    for name in steps:
        ends(name, [])


@pytest.mark.parametrize("kind", STEPS)
def test_what_comes_next_is_in_the_plan(kind):
    for step in STEPS[kind].values():
        assert {step.then, step.otherwise} - {None} <= STEPS[kind].keys()
        assert step.where is Where.HERE or step.name in EVENTS


def test_hosts_know_what_to_do_at_each_of_their_steps():
    runner = JobRunner(None, Builder(None, NoAcceleration(), bool, frozenset), lambda: None)
    assert runner._kinds.keys() >= HOST_STEPS
