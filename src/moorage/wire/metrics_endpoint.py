"""GET /metrics for Prometheus. Mounted beside the services of a process, not inside one."""

from collections.abc import Callable, Iterable
from ipaddress import ip_address
from wsgiref.types import WSGIEnvironment

from moorage.telemetry.metrics import CONTENT_TYPE, Metrics
from moorage.wire import forwarded
from moorage.wire.app import WsgiApp


def metrics_app(metrics: Metrics, *, beyond_loopback: bool) -> WsgiApp:
    """The endpoint. It needs no credentials, as Prometheus sends none by default; other machines need
    `beyond_loopback`.

    Metrics name services, routes and background tasks, but never a project, user, provider or consumer.
    """

    def scrape(environ: WSGIEnvironment, start_response: Callable[..., object]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") not in ("", "/"):
            return _text_response(start_response, "404 Not Found", b"metrics are at /metrics\n")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _text_response(start_response, "405 Method Not Allowed", b"metrics are read with GET\n")
        if not (beyond_loopback or _is_local(environ)):
            message = (
                b"metrics are served to this machine only; set [server] metrics = everywhere to serve them to others\n"
            )
            return _text_response(start_response, "403 Forbidden", message)
        return _text_response(start_response, "200 OK", metrics.render(), CONTENT_TYPE)

    return scrape


def _is_local(environ: WSGIEnvironment) -> bool:
    # A request through a proxy comes from another machine, even if the proxy runs here.
    if not environ.keys().isdisjoint(forwarded.FORWARDING_HEADERS):
        return False
    try:
        return ip_address(environ.get("REMOTE_ADDR", "").partition("%")[0]).is_loopback
    except ValueError:
        return False


def _text_response(
    start_response: Callable[..., object], status: str, body: bytes, content_type: str = "text/plain; charset=utf-8"
) -> list[bytes]:
    start_response(status, [("content-type", content_type), ("content-length", str(len(body)))])
    return [body]
