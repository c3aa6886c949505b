"""The network between the parts: requests and hints, and the faults that can happen to them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from typing import TYPE_CHECKING

from moorage.core.errors import Unavailable
from moorage.jobs.background_tasks import Wakeups
from moorage.wire.transports import ClientResponse

if TYPE_CHECKING:
    from tests.simulation.part import Part
    from tests.simulation.world import World

#: How long a caller waits before it gives up.
PATIENCE_S = 60.0
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})


class Line:
    """A `moorage.wire.transports.Transport` from a part (None: from a user) to the service behind a URL."""

    def __init__(self, world: "World", caller: "Part | None", url: str) -> None:
        self.base_url = url.rstrip("/")
        self._world = world
        self._caller = caller
        self._service = self.base_url.split("/")[3]

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None = None
    ) -> ClientResponse:
        whole = body if body is None or isinstance(body, bytes) else b"".join(body)
        what = f"{method} /{self._service}{path}"
        self._point(f"before {what}")
        answer = self._carried(method, path, dict(headers), whole)
        # The caller may have been killed while it served a request of the callee.
        self._point(f"after {what}")
        world, who = self._world, self._caller.name if self._caller else "user"
        world.story.tell(f"{who} {what} -> {answer.status if answer else 'nothing'}")
        if answer is None:
            raise Unavailable(f"{self.base_url} does not answer", url=self.base_url)
        world.answered(who, what, answer)
        return answer

    @contextmanager
    def stream(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> Iterator[tuple[int, Mapping[str, str], Iterator[bytes]]]:
        answer = self.send(method, path, headers)
        yield answer.status, answer.headers, iter((answer.body,))

    def _point(self, where: str) -> None:
        if self._caller is not None:
            self._caller.point(where)

    def _carried(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> ClientResponse | None:
        world = self._world
        dice, callee = world.dice, world.serving[self._service]

        def serve() -> ClientResponse | None:
            # A separate context, as in a server's thread: a kill during this request does not affect the next one.
            return Context().run(callee.serve, self.base_url, method, path, headers, body)

        if dice.happens("lost"):
            world.clock.sleep(PATIENCE_S)
            return None
        if dice.happens("late"):
            world.clock.sleep(PATIENCE_S)
            what = f"{method} /{self._service}{path}"
            world.late.append((what, body or b""))
            world.later(dice.seconds("late", 60.0), f"late {what}", serve)
            return None
        if dice.happens("delayed"):
            world.clock.sleep(dice.seconds("delayed", 30.0))
        answer = serve()
        if method in _REPEATABLE and dice.happens("doubled"):
            answer = serve()
        if dice.happens("unanswered"):
            world.clock.sleep(PATIENCE_S)
            return None
        return answer


class Hub:
    """`moorage.jobs.wakeups.Hints` between the parts, as a broker.

    It wakes the waiters of its own part at once, and those of other parts unless the hint is lost.
    """

    def __init__(self, world: "World", part: "Part", wakeups: Wakeups) -> None:
        self._world = world
        self._part = part
        self._wakeups = wakeups

    def send(self, queue: str) -> None:
        self._part.point(f"hint to {queue}")
        self._wakeups.wake(queue)
        for other in self._world.parts.values():
            wakeups = other.wakeups
            if other is self._part or wakeups is None or queue not in wakeups.queues():
                continue
            if not self._world.dice.happens("hint"):
                wakeups.wake(queue)

    def close(self) -> None:
        return
