"""Maps each kind of step to the method that runs it."""

from collections.abc import Iterable, Sequence

from moorage.reservation.model.steps import Actions, Further, JointActions, Part, Step, StepKind, Waiting


class StepRegistry:
    def __init__(self, actions: Iterable[Actions], joint_actions: JointActions) -> None:
        self._actions = {kind: action for each in actions for kind, action in each.items()}
        self._joint = joint_actions
        if missing := set(StepKind) - self._actions.keys():
            raise ValueError(f"no action for the step kinds {', '.join(sorted(missing))}")

    def run_step(self, step: Step) -> Waiting | Further | None:
        """None if the step is done. Raises a `MoorageError` if it failed; it may be retried."""
        return self._actions[step.kind](step)

    def joint_parts(self, kind: StepKind, steps: Sequence[Step]) -> Sequence[Part]:
        """Parts that run many steps of this kind together, in any order."""
        return self._joint[kind](steps)
