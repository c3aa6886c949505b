"""HTTP: the Reservation API's routes, handlers, schemas and OpenAPI document."""
