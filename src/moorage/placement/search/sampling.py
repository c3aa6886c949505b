"""A limited search that does not always begin with the same trees: `limit` of all that fit, from all over the cloud.

Without it the first trees by age are the answer each time, and a scheduler that compares few hosts would fill them one
after the other. The order is an even stride around all trees from a start, both of which the seed says: so many trees
are looked at as are needed and no more, and the same seed sees the same trees again.
"""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Longest seed that is read; a longer one means no other sample.
LONGEST_SEED = 128


@dataclass(frozen=True, slots=True)
class Stride:
    """All of ``0 .. count - 1``, each once, in an order of its own."""

    count: int
    start: int
    step: int

    def between(self, begin: int, end: int) -> NDArray[np.intp]:
        """From the `begin`-th of the order to before the `end`-th."""
        order = np.arange(begin, min(end, self.count), dtype=np.int64)
        return ((self.start + order * self.step) % self.count).astype(np.intp)


def stride(count: int, seed: str) -> Stride:
    """`count`: 1 at least."""
    digest = hashlib.blake2b(seed[:LONGEST_SEED].encode(errors="replace"), digest_size=16).digest()
    start, step = int.from_bytes(digest[:8]) % count, int.from_bytes(digest[8:]) % count
    while math.gcd(step, count) != 1:
        step += 1
    return Stride(count, start, step)
