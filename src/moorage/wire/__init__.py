"""The HTTP kernel: turns a service's route table into a WSGI application, and holds the client side of the same wire.

    bytes -> server (sockets, threads, limits)
          -> app (request id, caller, microversion, route, policy, schema) -> handler(Request) -> Response
          -> app (audit entry, error shape, metrics) -> server -> bytes

    ServiceClient (credentials, retries) -> transports (TCP, Unix socket, in process) -> the other service

In it: `app`, `http` (`Request`, `Response`, `Route`), `body` (JSON and schemas), `microversion`, `errors`, `openapi`,
`audit_entries`, `middleware` (CORS, trace spans, and the endpoint for Prometheus), `client`, `transports`, and our
HTTP/1.1 server in `server`. `admission` decides how much of a body the server reads, `forwarded` reads a proxy's
headers, and `unix_socket_api` is the kernel on a local socket.
Not in it: the routes of a service, and how a caller is authenticated (`moorage.identity`).
Callers: the `routes`, `handlers` and `client` modules of every service; `moorage.wiring` assembles the applications.
"""
