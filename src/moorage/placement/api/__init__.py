"""HTTP: Placement 1.0 to 1.39, and Moorage's own routes under ``/moorage/v1``.

* `routes`: the route table with the texts of the OpenAPI document, and the policy rules. Start here.
* `handlers`: one module per resource; each decodes a request, calls the service, encodes the answer.
* `schemas`: JSON schemas of bodies, queries and answers.
* `error_shape`: errors as OpenStack Placement words them.

Decisions are in `service`. The wiring mounts `routes.API`.
"""
