"""The limit on the work for one request, counted in steps so that it means the same on every machine.

A hostile request (hundreds of groups, nested ``same_subtree``, no limit on millions of solutions) is refused with an
error that names the most expensive part. A step takes 0.5 to 1.5 us and at most 100 bytes.
"""

from enum import Enum

from moorage.core.errors import Invalid

#: At most about a second, and 100 MiB. Only requests without a limit, with hundreds of groups, or with very many
#: combinations that nearly fit come near. Operators set it with [placement] max_search_steps.
MAX_STEPS = 800_000

#: Number of comparisons of a member with a condition that cost one step; they are array operations.
COMPARISONS_PER_STEP = 64


class BudgetItem(Enum):
    """The parts of a search; the value names the part and tells the client how to make it cheaper."""

    COMPARING = "comparing providers with groups; request fewer different groups"
    TRYING = (
        "trying combinations of providers; request fewer groups, distinguish the providers by more traits or "
        "aggregates, or set a limit"
    )
    LISTING = "listing candidates; set a limit, or a smaller one"


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
        f"The search for candidates was stopped at its limit of {steps} steps. It spent most of them on {most.value}. "
        "An operator can raise the limit with [placement] max_search_steps.",
        code="placement.query.too_complex",
    )
