"""The HTTP kernel: one route table per service in, WSGI out; and the client side of the same wire.

Here: microversions, bodies and their schemas, error shapes, request ids, transports.
Not here: any service's routes, and how a caller is identified (`moorage.identity`).
"""
