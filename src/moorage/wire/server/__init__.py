"""Our HTTP/1.1 server: sockets, connections, threads and limits around one WSGI application.

    epoll -> connection (collects a request) -> threads (is one free for it?) -> wsgi_response (calls the
    application and sends its answer) -> connection (waits for the next request)

`http_server` owns the loop, and `threads` decides which thread runs it. `http1` parses heads, `request_body` decodes
bodies, and `limits` holds the timeouts and quotas; these three do no I/O. `tls` encrypts. `process_setup` prepares the
process (signals, memory, file limit).
Not in it: routing (`moorage.wire.app`) and the decision how much of a body is read (`moorage.wire.admission`).
Callers: `moorage.cli.serve`, the tests and the benchmarks. Decision 0014 says why we have a server of our own.
"""
