"""From HTTP to use cases and back, one module per resource: decode, call the service, encode.

`answers` has what all handlers share; `agents` limits what the agent of a host may do. No handler decides: a refusal
comes from a schema, a policy rule or the service.
"""
