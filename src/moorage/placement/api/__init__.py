"""HTTP: the route table of Placement 1.0 to 1.39, handlers, schemas, errors as Placement words them, OpenAPI."""
