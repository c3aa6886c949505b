"""Handlers, one module per resource: each decodes a request, calls the service and encodes the answer.

`answers` contains the parts that all handlers share; `agents` limits the requests of a host's agent. Handlers make no
decisions: refusals come from a schema, a policy rule or the service.
"""
