"""Counts the requests of the services of a process, with prometheus-client.

The module imports prometheus-client only when metrics are created, because every command of the CLI imports it.
"""

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Gauge, Histogram

#: Upper bounds of durations, in seconds: from a read in memory to a database that hangs.
DURATIONS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0)

#: The route label of a request without a route: a path from a client must not become a label.
NO_ROUTE = "(none)"


class RequestMeters:
    """The metrics of all services. Without a registry nobody can read them."""

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        from prometheus_client import Gauge, Histogram

        self._durations = Histogram(
            "moorage_http_request_duration_seconds",
            "From the first byte of a request to its response; for a stream, to the beginning of the response.",
            ["service", "method", "route", "status"],
            registry=registry,
            buckets=DURATIONS_S,
        )
        self._in_flight = Gauge(
            "moorage_http_requests_in_flight", "Requests that are being handled.", ["service"], registry=registry
        )

    def of_service(self, service: str) -> "RequestMeter":
        return RequestMeter(self._durations, self._in_flight, service)


class RequestMeter:
    """The number of requests in flight at one service, and the durations of completed requests."""

    def __init__(self, durations: "Histogram", in_flight: "Gauge", service: str) -> None:
        self._durations = durations
        self._in_flight = in_flight.labels(service)
        self._service = service
        #: {(method, route, status): the histogram with these labels}, because the library takes 2 us to find one.
        self._labelled: dict[tuple[str, str, int], Histogram] = {}

    def begin_request(self) -> float:
        """Start a request. Returns the value to pass to `end_request`."""
        self._in_flight.inc()
        return perf_counter()

    def end_request(self, began: float, method: str, route: str, status: int) -> None:
        """`route` is the path template, never the path."""
        self._in_flight.dec()
        durations = self._labelled.get((method, route, status))
        if durations is None:
            durations = self._durations.labels(self._service, method, route, status)
            self._labelled[method, route, status] = durations
        durations.observe(perf_counter() - began)
