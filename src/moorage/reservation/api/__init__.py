"""HTTP for the Reservation API v1: the route table with the texts of the OpenAPI document, handlers and schemas.

    routes -> handlers (decode, one call to the service, encode) -> schemas (the wire format)

Microversion 1.0 equals Blazar's API byte for byte; 1.1 adds what Blazar does not have. Handlers
decide nothing: each calls `service` once. `moorage.wiring` mounts `routes.API`.
"""
