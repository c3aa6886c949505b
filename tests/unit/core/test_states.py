from enum import StrEnum

import pytest

from moorage.core.errors import Conflict
from moorage.core.states import transition_table


class Boat(StrEnum):
    MOORED = "moored"
    SAILING = "sailing"
    SUNK = "sunk"


BOAT = transition_table("a boat", {Boat.MOORED: [Boat.SAILING], Boat.SAILING: [Boat.MOORED, Boat.SUNK]})


def test_an_allowed_transition_gives_the_state_after():
    assert BOAT.check_transition(Boat.MOORED, Boat.SAILING) is Boat.SAILING


def test_a_forbidden_transition_is_a_conflict_that_names_the_allowed_states():
    with pytest.raises(Conflict) as caught:
        BOAT.check_transition(Boat.MOORED, Boat.SUNK)
    assert caught.value.message == "a boat cannot go from moored to sunk; after moored there may be sailing"
    assert caught.value.error_code == "moorage.state"


def test_a_final_state_has_no_transitions():
    with pytest.raises(Conflict, match="after sunk there may be nothing"):
        BOAT.check_transition(Boat.SUNK, Boat.MOORED)


def test_staying_in_a_state_must_be_allowed_like_a_transition():
    with pytest.raises(Conflict):
        BOAT.check_transition(Boat.MOORED, Boat.MOORED)


def test_states_before_are_those_with_a_transition_to_the_state():
    assert BOAT.states_before(Boat.MOORED) == {Boat.SAILING}
    assert BOAT.states_before(Boat.SAILING) == {Boat.MOORED}
