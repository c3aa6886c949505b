"""The wire format: JSON schemas, decoders from bodies to typed values, encoders in the shape that Blazar answers.

    body -> JSON schema -> decoder -> values of `model` -> (service) -> values -> encoder -> answer

`reservation` has the keys of each resource type, `lease` also series and maintenance windows, `host` also floating
IPs and limits, `availability` also the calendar, `listing` the queries of lists in pages, `common` dates and errors.
Not here: checks that need the database or other services (`leases`, `booking`). Callers: the handlers and `routes`.
"""
