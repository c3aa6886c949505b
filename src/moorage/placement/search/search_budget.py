"""How much work one request may cost: counted, so that a limit means the same on every machine.

A hostile request (hundreds of groups, nests of ``same_subtree``, no limit where there are millions of ways) is given up
with an error that says what took most of it. One step is half a microsecond to one and a half, and a hundred bytes at most.
"""

from enum import Enum

from moorage.core.errors import Invalid

#: About a second at most, and 100 MiB. Only a request without a limit, one with hundreds of groups, or one whose groups nearly
#: fit in very many ways comes near. For operators: [placement] max_search_steps.
MAX_STEPS = 800_000

#: Members compared with one thing that a group asks, for one step: it is done in arrays.
COMPARISONS_PER_STEP = 64


class BudgetItem(Enum):
    """What steps are spent on; the value is what one can do about it."""

    COMPARING = "comparing providers with groups: ask for fewer different groups"
    TRYING = (
        "trying which providers go together: ask for fewer groups, tell the providers apart by more traits or "
        "aggregates, or give a limit"
    )
    NAMING = "naming candidates: give a limit, or a smaller one"


class SearchBudget:
    """What is left for one request."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._spent = dict.fromkeys(BudgetItem, 0)

    @property
    def spent(self) -> int:
        return sum(self._spent.values())

    def affords(self, steps: int) -> bool:
        return self.spent + steps <= self.steps

    def spend(self, item: BudgetItem, steps: int) -> None:
        """Raises `Invalid` (code placement.query.too_complex) when it is more than there was."""
        self._spent[item] += steps
        if self.spent > self.steps:
            raise too_complex(self.steps, max(self._spent, key=self._spent.__getitem__))


def too_complex(steps: int, most: BudgetItem) -> Invalid:
    return Invalid(
        f"The search for candidates was given up at its limit of {steps} steps, most of them spent on {most.value}. An "
        "operator can raise the limit: [placement] max_search_steps.",
        code="placement.query.too_complex",
    )
