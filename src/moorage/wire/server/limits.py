"""The server's limits: timeouts for clients, the minimum data rate, and bounds of memory and connections.

No I/O and no clock: times are arguments, in seconds of the monotonic clock.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits; the [server] options have the same names."""

    #: Bound from the connection to the first byte, and from the first byte to the end of a request's head.
    head_timeout_s: float = 10.0
    #: A connection without a request for this time is closed.
    idle_timeout_s: float = 120.0
    #: Minimum rate at which a client must send a body and read a response ...
    min_rate_bytes_s: int = 16 * 1024
    #: ... but it may fall behind by this time if it is authenticated,
    stall_s: float = 20.0
    #: or by this time if it is not.
    public_stall_s: float = 5.0
    #: Bound of the memory for requests and responses of slow clients, over all connections.
    buffer_bytes: int = 256 << 20
    #: Maximum number of open connections.
    connections: int = 8192
    #: Maximum number of bodies that threads read while they arrive (images); at most half of the threads do so.
    uploads: int = 8


class Pace:
    """Checks that a client keeps the minimum rate, by means of an allowance in seconds.

    Waiting uses the allowance up, and transferred bytes add to it, but never above `stall_s`. So a fast start does not
    earn a long pause, and the size of a body or response has no bound of its own.
    """

    __slots__ = ("_left_s", "_rate", "_since", "_stall_s")

    def __init__(self, stall_s: float, min_rate_bytes_s: int) -> None:
        self._stall_s = self._left_s = stall_s
        self._rate = min_rate_bytes_s
        self._since: float | None = None

    def start_waiting(self, now: float) -> float:
        """Start waiting for the client, unless already waiting. Returns the deadline."""
        if self._since is None:
            self._since = now
        return self._since + self._left_s

    def record_transfer(self, size_bytes: int, now: float) -> None:
        """Record transferred bytes, which ends the wait. Call `start_waiting` again to wait for more."""
        waited_s = 0.0 if self._since is None else now - self._since
        self._since = None
        self._left_s = min(self._stall_s, self._left_s - waited_s + size_bytes / self._rate)
