"""The Compute API v2.1: routes, policy rules, request schemas, handlers and views.

    routes         the route table: method, path, handler, rule, schema, microversions
    policy_rules   Nova's rule names, and who passes each
    schemas        JSON schemas of bodies by microversion, and the query parameters of lists
    handlers       one module per resource: decode the request, call `ComputeService`, build the view

The messages and shapes are Nova's (measured on 34.0.0), so that its clients work unchanged. Not here: any decision
about servers (`servers`, `moves`, `model.lifecycle`).
"""
