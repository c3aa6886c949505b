"""How long the server waits for its clients, and how much it keeps for them: plain values, and what follows from them.

No I/O and no clock: moments are arguments, seconds of the monotonic clock.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """[server] options of the same names."""

    #: A head must be there so long after its first byte, and the first byte after the connection.
    head_timeout_s: float = 10.0
    #: Without a request for so long a connection ends.
    idle_timeout_s: float = 120.0
    #: A body must come, and an answer be taken, at this rate at least ...
    min_rate_bytes_s: int = 16 * 1024
    #: ... but may fall behind it for so long, where the client is known;
    stall_s: float = 20.0
    #: where it is not.
    public_stall_s: float = 5.0
    #: Of requests that come and answers that go, so much is kept for slow clients in all.
    buffer_bytes: int = 256 << 20
    #: Open connections at most.
    connections: int = 8192
    #: Bodies read by a thread while they come (images), at most, and by no more than half of the threads.
    uploads: int = 8


class Pace:
    """Whether the other side keeps up with the least rate: an allowance in seconds.

    Waiting uses it up and bytes that move add to it, never above `stall_s`; so a client cannot earn a long rest by a quick
    start, and the size of a body or an answer has no bound of its own.
    """

    __slots__ = ("_left_s", "_rate", "_since", "_stall_s")

    def __init__(self, stall_s: float, min_rate_bytes_s: int) -> None:
        self._stall_s = self._left_s = stall_s
        self._rate = min_rate_bytes_s
        self._since: float | None = None

    def start_waiting(self, now: float) -> float:
        """We wait for the other side from now on, if not already; returns until when at most."""
        if self._since is None:
            self._since = now
        return self._since + self._left_s

    def record_transfer(self, size_bytes: int, now: float) -> None:
        """Bytes came or went; whether we go on waiting `waits` says."""
        waited_s = 0.0 if self._since is None else now - self._since
        self._since = None
        self._left_s = min(self._stall_s, self._left_s - waited_s + size_bytes / self._rate)
