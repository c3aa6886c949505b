"""JSON schemas of request bodies, by microversion, and the query parameters that lists accept (`queries`)."""
