"""Carries steps out: whoever can do the kind does it."""

from collections.abc import Iterable, Sequence

from moorage.reservation.model.steps import Actions, Further, JointActions, Part, Step, StepKind, Waiting


class StepRegistry:
    def __init__(self, actions: Iterable[Actions], joint_actions: JointActions) -> None:
        self._actions = {kind: action for each in actions for kind, action in each.items()}
        self._joint = joint_actions
        if missing := set(StepKind) - self._actions.keys():
            raise ValueError(f"nobody does {', '.join(sorted(missing))}")

    def run_step(self, step: Step) -> Waiting | Further | None:
        """None when the step is done. Raises a `MoorageError` when it could not be; it may be tried again."""
        return self._actions[step.kind](step)

    def joint_parts(self, kind: StepKind, steps: Sequence[Step]) -> Sequence[Part]:
        """What carries out many steps of this kind, with what they can share."""
        return self._joint[kind](steps)
