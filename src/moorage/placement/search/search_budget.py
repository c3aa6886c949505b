"""The limit on the work for one request, counted in steps so that it means the same on every machine.

A hostile request (hundreds of groups, nested ``same_subtree``, no limit where there are millions of solutions) is given
up with an error that names the most expensive part. A step takes 0.5 to 1.5 us and at most 100 bytes.
"""

from enum import Enum

from moorage.core.errors import Invalid

#: About a second at most, and 100 MiB. Only a request without a limit, one with hundreds of groups, or one whose groups nearly
#: fit in very many ways comes near. For operators: [placement] max_search_steps.
MAX_STEPS = 800_000

#: Comparisons of a member with a condition that cost one step: they are done in arrays.
COMPARISONS_PER_STEP = 64


class BudgetItem(Enum):
    """The work that steps are spent on; the value names it and tells the client how to reduce it."""

    COMPARING = "comparing providers with groups: ask for fewer different groups"
    TRYING = (
        "trying which providers go together: ask for fewer groups, tell the providers apart by more traits or "
        "aggregates, or give a limit"
    )
    NAMING = "naming candidates: give a limit, or a smaller one"


class SearchBudget:
    """The steps that remain for one request."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._spent = dict.fromkeys(BudgetItem, 0)

    @property
    def spent(self) -> int:
        return sum(self._spent.values())

    def affords(self, steps: int) -> bool:
        return self.spent + steps <= self.steps

    def spend(self, item: BudgetItem, steps: int) -> None:
        """Raises `Invalid` (code placement.query.too_complex) when the budget is exceeded."""
        self._spent[item] += steps
        if self.spent > self.steps:
            raise too_complex(self.steps, max(self._spent, key=self._spent.__getitem__))


def too_complex(steps: int, most: BudgetItem) -> Invalid:
    return Invalid(
        f"The search for candidates was given up at its limit of {steps} steps, most of them spent on {most.value}. An "
        "operator can raise the limit: [placement] max_search_steps.",
        code="placement.query.too_complex",
    )
