"""Clients of `moorage bench`, in a process each, and what comes back of them."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from moorage.cli.bench_clients import BenchKind, BenchWork, sampled
from moorage.cli.services import Endpoints
from moorage.core.errors import Unavailable


class Token:
    def headers(self, *, renew=False):
        return {"x-auth-token": "of the parent"}


class Placement(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.add((self.client_address[1], self.headers["x-auth-token"]))
        body = b"{}" if self.server.status == 200 else b'{"errors": [{"detail": "no such class"}]}'
        self.send_response(self.server.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Placement) as server:
        server.seen, server.status, server.daemon_threads = set(), 200, True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def there(server):
    return Endpoints({"placement": f"http://127.0.0.1:{server.server_address[1]}"}, Token())


def test_each_client_is_a_process_that_asks_with_the_token_that_was_fetched_once(server):
    took = sampled(there(server), BenchWork(BenchKind.CANDIDATES, "uuid", "CUSTOM_A"), 0.05, 3)
    assert len(took) == 3
    assert all(each > 0 for one in took for each in one)
    assert [token for _, token in server.seen] == ["of the parent"] * 3, "a connection each"


def test_a_refusal_of_one_of_them_is_told(server):
    server.status = 400
    with pytest.raises(Unavailable, match="no such class"):
        sampled(there(server), BenchWork(BenchKind.CANDIDATES, "uuid", "CUSTOM_A"), 0.05, 2)
    with pytest.raises(Unavailable, match="there is no reservation service"):
        sampled(there(server), BenchWork(BenchKind.LEASES), 0.05, 2)
