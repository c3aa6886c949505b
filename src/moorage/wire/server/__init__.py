"""The HTTP server: sockets, connections, threads and limits."""
