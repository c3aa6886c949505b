"""What a request notices of a provider, as bits: whoever has the same bits as before need not be looked at again.

Most writes are claims, and most claims leave room for another one, so they change nothing for who asks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moorage.placement.forest.columns import Slots
from moorage.placement.forest.forest import Forest
from moorage.placement.search import masks
from moorage.placement.search.masks import Mask
from moorage.placement.search.request import CandidateRequest
from moorage.placement.search.requirements import TOO_MUCH, demand_of

#: A bit for each thing that is noticed, in numbers as small as will do.
Bits = NDArray[np.unsignedinteger[Any]]
MOST = 64


@dataclass(frozen=True, slots=True)
class Noticed:
    """All that the answer to a request depends on, besides who belongs to whom."""

    units: tuple[tuple[str, int], ...]  #: (class, amount): does it fit?
    traits: tuple[frozenset[str], ...]  #: has it one of these?
    aggregates: tuple[frozenset[str], ...]  #: is it in one of these?

    def bits(self, forest: Forest, slots: Slots) -> Bits:
        """By place in `slots`."""
        count = len(self.units) + len(self.traits) + len(self.aggregates)
        found: Bits = np.zeros(len(slots), dtype=np.min_scalar_type((1 << count) - 1))
        for number, mask in enumerate(self._masks(forest, slots)):
            found[mask] |= 1 << number
        return found

    def is_short(self, forest: Forest, slots: Slots, bits: Bits) -> Mask:
        """By place in `slots`, with their `bits`: is there some of a class, and not enough? How much then is no bit."""
        found = np.zeros(len(slots), dtype=np.bool_)
        for number, (name, _) in enumerate(self.units):
            if (column := forest.columns.get(name)) is not None:
                found |= (masks.rows_at(forest, name, slots) < len(column.slots)) & (bits & (1 << number) == 0)
        return found

    def _masks(self, forest: Forest, slots: Slots) -> Iterator[Mask]:
        for name, amount in self.units:
            yield masks.fits(forest, name, amount, masks.rows_at(forest, name, slots))
        for any_of in self.traits:
            yield masks.with_any(forest, any_of)[slots]
        for any_of in self.aggregates:
            yield masks.members_of_any(forest, any_of)[slots]


def noticed_by(request: CandidateRequest) -> Noticed | None:
    """None where that is more than bits: how much a provider could give to several groups, or very much in all."""
    if "noticed" not in request.memo:
        request.memo["noticed"] = None if demand_of(request).contested else _noticed_by(request)
    found = request.memo["noticed"]
    return found if isinstance(found, Noticed) else None


def _noticed_by(request: CandidateRequest) -> Noticed | None:
    units: dict[tuple[str, int], None] = {}
    traits = dict.fromkeys(frozenset((trait,)) for trait in (*request.root_required, *request.root_forbidden))
    aggregates: dict[frozenset[str], None] = {}
    for group in request.groups:
        units |= dict.fromkeys((name, min(amount, TOO_MUCH)) for name, amount in group.resources.items())
        traits |= dict.fromkeys((*group.traits.required, group.traits.forbidden))
        aggregates |= dict.fromkeys((*group.aggregates.required, group.aggregates.forbidden))
    if len(units) + len(traits) + len(aggregates) > MOST:
        return None
    return Noticed(tuple(units), tuple(filter(None, traits)), tuple(filter(None, aggregates)))
