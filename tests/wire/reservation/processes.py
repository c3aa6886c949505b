"""Processes of the reservation service whose requests to other services are recorded, fail, or kill the process.

noting = plane.new_process()
noting.runner.run_once()
assert noting.asked == [ADD_INVENTORY, GRANT]
plane.use(plane.new_process(fails={GRANT: RemoteError("no", status=500)}, times=1))
plane.new_process(before=die)       # `die` raises `Killed` at one of the requests
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from moorage.jobs.worker_watch import UNKNOWN, Worker, WorkerWatch
from moorage.reservation.events.event_runner import TOPIC
from moorage.reservation.store import event_store
from moorage.reservation.store.tables import workers
from moorage.wire.client import MAX_REPEATS
from moorage.wire.transports import ClientResponse
from tests.plane import InProcessPlane, Request, Send

PROVIDERS, FLAVORS = "placement/resource_providers", "compute/v2.1/flavors"

#: Names of requests of the reservation service: method, path without ids, and the name of an action.
ADD_INVENTORY = f"POST {PROVIDERS}/*/inventories"
WRITE_INVENTORIES = f"PUT {PROVIDERS}/*/inventories"
READ_INVENTORIES = f"GET {PROVIDERS}/*/inventories"
DELETE_INVENTORY = f"DELETE {PROVIDERS}/*/inventories/*"
READ_CHANGES = "GET placement/moorage/v1/changes"
READ_TREE = "GET placement/moorage/v1/trees/*"
CREATE_PROVIDER = f"POST {PROVIDERS}"
WRITE_TRAITS = f"PUT {PROVIDERS}/*/traits"
ENSURE_TRAIT = "PUT placement/traits/*"
ENSURE_CLASS = "PUT placement/resource_classes/*"
READ_CLASS = "GET placement/resource_classes/*"
DELETE_CLASS = "DELETE placement/resource_classes/*"
READ_VERSION = "GET placement/"
CREATE_FLAVOR = f"POST {FLAVORS}"
DELETE_FLAVOR = f"DELETE {FLAVORS}/*"
SET_EXTRA_SPECS = f"POST {FLAVORS}/*/os-extra_specs"
GRANT = f"POST {FLAVORS}/*/action addTenantAccess"
ADD_HOST = "POST compute/v2.1/os-aggregates/*/action add_host"
REMOVE_HOST = "POST compute/v2.1/os-aggregates/*/action remove_host"
CREATE_GROUP = "POST compute/v2.1/os-server-groups"
LIST_SERVERS = "GET compute/v2.1/servers/detail"
CREATE_IMAGE = "POST compute/v2.1/servers/*/action createImage"
CONFIRM_RESIZE = "POST compute/v2.1/servers/*/action confirmResize"
READ_HOSTS = "GET compute/v2.1/os-services"

#: How many times a client sends a repeatable request that gets no answer.
TRIES = 1 + MAX_REPEATS

#: An id, or the name of a class or a trait.
_NAMED = re.compile(r"(?<=/)(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+|[A-Z][A-Z0-9_]+)(?=/|$)")


@dataclass
class Call:
    """A request of the reservation service to another service."""

    service: str
    request: Request
    #: The status of the answer; None if there is no answer (yet).
    status: int | None = None

    @cached_property
    def name(self) -> str:
        """The name of the request, in the format of the constants above."""
        method, path = self.request.method, self.request.resource
        verb = f" {next(iter(self.document))}" if path.endswith("/action") else ""
        return f"{method} {self.service}{_NAMED.sub('*', path)}{verb}"

    @property
    def document(self) -> Any:
        return json.loads(self.request.body or b"null")

    def is_about(self, *texts: str) -> bool:
        """Whether the path contains one of these texts, such as a flavor id or the name of a resource class."""
        return any(text in self.request.path for text in texts)


Hook = Callable[[Call], object]


class Process:
    """The reservation service of `plane`."""

    def __init__(self, plane: InProcessPlane) -> None:
        self.plane = plane

    @property
    def service(self) -> Any:
        return self.plane.service("reservation")

    @property
    def leases(self) -> Any:
        return self.service.leases

    @property
    def runner(self) -> Any:
        return self.plane.task("reservation.runner")

    @property
    def watch(self) -> Any:
        return self.plane.task("reservation.watch")

    def worker_watch(self) -> WorkerWatch:
        """The process's look at the others, which it is on another machine than. Only in virtual time is it no task."""
        worker = Worker(self.service.executor.worker, f"{self.plane.directory}", UNKNOWN)
        engine, cloud = self.plane.engine("reservation"), self.plane.cloud
        watch = WorkerWatch(
            "workers", engine, cloud.clock, cloud.wakeups, worker, workers, event_store.drop_claims_of, [TOPIC]
        )
        watch.register()
        return watch


class WatchedProcess(Process):
    """A process that records its requests to other services in `calls`.

    `before` and `after` are called around each request and may raise. `fails` maps names of requests to errors: the
    first `times` such requests raise their error instead of being sent.
    """

    def __init__(
        self,
        plane: InProcessPlane,
        *,
        before: Hook | None = None,
        after: Hook | None = None,
        fails: Mapping[str, BaseException] | None = None,
        times: int = 10**9,
    ) -> None:
        super().__init__(plane)
        self.calls: list[Call] = []
        self._before, self._after = before or _nothing, after or _nothing
        self._fails, self._left = fails or {}, times
        for service, way in plane.ways.items():
            way.around = self._around(service)

    @property
    def asked(self) -> list[str]:
        """The names of the recorded requests, in order."""
        return [call.name for call in self.calls]

    def _around(self, service: str) -> Callable[[Request, Send], ClientResponse]:
        def around(request: Request, send: Send) -> ClientResponse:
            call = Call(service, request)
            self.calls.append(call)
            self._before(call)
            if self._left and call.name in self._fails:
                self._left -= 1
                raise self._fails[call.name]
            answer = send()
            call.status = answer.status
            self._after(call)
            return answer

        return around


def _nothing(_call: Call) -> None:
    pass
