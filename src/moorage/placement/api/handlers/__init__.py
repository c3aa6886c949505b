"""Handlers, one module per resource: each decodes a request, calls the service and encodes the answer.

    request -> `agents` (a host's agent may change its own tree only) -> decode -> one use case of `service` -> answer

`answers` contains the parts that all handlers share. Handlers make no decisions: refusals come from a schema, a policy
rule or the service. Not here: the wording of errors (`api.error_shape`). Caller: `placement.api.routes`.
"""
