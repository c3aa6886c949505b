"""Serves a WSGI application with unmodified request headers: adds no Content-Type and does not check Content-Length.

A real HTTP front end answers a malformed Content-Length itself, but one test of the suite expects Placement's own
message. Uses only the standard library, because it serves both sides of a comparison. Not for production.
"""

import socketserver
from wsgiref import simple_server


class _Handler(simple_server.WSGIRequestHandler):
    def get_environ(self):
        environ = super().get_environ()
        if self.headers.get("content-type") is None:
            environ.pop("CONTENT_TYPE", None)
        return environ

    def address_string(self):
        return self.client_address[0]

    def log_message(self, *_arguments):
        pass


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def server_bind(self):
        # The method of HTTPServer would look up the name of this machine.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]
        self.setup_environ()


def serve(app, port: int) -> None:
    """Serve `app` on loopback until the process ends."""
    server = _Server(("127.0.0.1", port), _Handler)
    server.set_app(app)
    server.serve_forever()
