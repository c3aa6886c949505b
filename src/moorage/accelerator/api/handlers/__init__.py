"""Handlers of the Accelerator API: each decodes a request, calls the service and encodes the answer.

`requests` has device profiles and the accelerator requests (ARQs) made from them; `devices` has devices, deployables,
attributes and bitstreams; `history` and `agents` are not part of Cyborg's API; `shapes` turns rows into JSON.
"""
