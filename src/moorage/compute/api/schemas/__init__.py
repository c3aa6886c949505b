"""JSON schemas of request bodies, by microversion, and the query parameters that lists accept (`queries`).

    servers, actions        servers and their actions          hosts      services, aggregates, the agents' API
    flavors, projects       flavors; quotas, keys, groups      events     events from other services

A body that a schema refuses is answered with 400 before its handler runs. Not here: checks that need the database, such
as whether a flavor exists (`compute.requests`). Callers: `compute.api.routes`, which has a schema for each route.
"""
