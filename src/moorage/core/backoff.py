"""Pauses that grow with the number of consecutive failures.

Not here: the clock and the count of failures, which belong to the caller.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """The first pause, and the longest. Each pause is `factor` times the one before."""

    first_s: float
    longest_s: float
    factor: float = 2.0

    def pause_s(self, failures: int, random_fraction: float = 0.5) -> float:
        """The pause after `failures` consecutive failures, counted from 1; 0 if there are none.

        The pause is multiplied by 0.5 + `random_fraction`, a number in [0, 1), so that many callers that failed at the
        same moment do not return at the same moment. The default leaves it as it is.
        """
        if failures < 1:
            return 0.0
        # The exponent is limited, because a float has no power above 1e308.
        return min(self.first_s * self.factor ** min(failures - 1, 64), self.longest_s) * (0.5 + random_fraction)
