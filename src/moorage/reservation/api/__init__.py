"""HTTP for the Reservation API v1: route table, handlers, schemas and the published OpenAPI document.

    routes -> handlers (decode, one call to the service, encode) -> schemas (the wire format)

Microversion 1.0 equals Blazar's API byte for byte; 1.1 adds what Blazar does not have. Handlers
decide nothing: each calls `service` once. `moorage.wiring` mounts `routes.API`.
"""
