"""JSON schemas of bodies, queries and answers, one module per resource; `common` has the parts that they share.

    request -> schema of its microversion (400 with the path of the fault) -> handler -> answer (`answers`, in tests)

The structure of a request's schema is part of the wire format, because error messages quote its paths and patterns. So
schemas are not shortened where that would change a path.
Not here: rules that need the forest (`placement.rules`). Callers: `routes`, the handlers, and the OpenAPI document.
"""
