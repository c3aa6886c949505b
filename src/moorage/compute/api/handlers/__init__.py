"""Handlers of the Compute API, one module per resource, with the name of the resource.

    request -> decode -> one use case of `ComputeService` -> the answer in the shape of the microversion

`views` has the shapes that several handlers share, `server_view` a server; `server_actions` and `server_subresources`
have the routes below a server; `agents` is the API of hosts; `unsupported_routes` refuses what Nova has and we do not.
Not here: decisions about servers. Caller: `compute.api.routes`.
"""
