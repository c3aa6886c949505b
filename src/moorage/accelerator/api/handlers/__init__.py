"""Handlers of the Accelerator API: each decodes a request, calls the service and encodes the answer.

    request -> decode -> one method of a service in `accelerator.service` -> rows -> `shapes` -> JSON

`requests` has device profiles and the accelerator requests (ARQs) made from them; `devices` has devices, deployables,
attributes and bitstreams; `versions` the version documents. `history` and `agents` are not part of Cyborg's API.
Not here: decisions and SQL. Caller: `accelerator.api.routes`.
"""
