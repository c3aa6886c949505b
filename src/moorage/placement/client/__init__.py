"""Placement over its public API. Other packages import this folder and nothing else of placement.

* `placement_client`: `PlacementClient`, microversion 1.39; it also works with OpenStack Placement.
* `candidates`: the decoded answer to ``GET /allocation_candidates``.
* `values`: providers, consumers and explanations as the client returns them.
* `change_feed`: follows the change log as server-sent events; Moorage only.
"""
