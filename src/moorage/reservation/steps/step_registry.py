"""Maps each kind of step to the method that runs it."""

from collections.abc import Iterable, Sequence
from typing import get_args

from moorage.reservation.model.steps import (
    Actions,
    Further,
    JointActions,
    Part,
    ReservationStep,
    Step,
    Waiting,
    kind_of,
)


class StepRegistry:
    def __init__(self, actions: Iterable[Actions], joint_actions: JointActions) -> None:
        self._actions = {kind: action for each in actions for kind, action in each.items()}
        self._joint = joint_actions
        if missing := set(get_args(Step)) - self._actions.keys():
            raise ValueError(f"no action for the step kinds {', '.join(sorted(map(kind_of, missing)))}")

    def run_step(self, step: Step) -> Waiting | Further | None:
        """None if the step is done. Raises a `MoorageError` if it failed; it may be retried."""
        return self._actions[type(step)](step)

    def joint_parts(self, kind: type[ReservationStep], steps: Sequence[Step]) -> Sequence[Part]:
        """Parts that run many steps of this kind together, in any order."""
        return self._joint[kind](steps)
