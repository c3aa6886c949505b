"""Use cases, one module per subject; `service.PlacementService` holds them all.

* `provider_service`, `name_service`, `allocation_service`: reads and writes of the Placement API.
* `candidate_service`: allocation candidates, filtered provider lists, and explanations.
* `event_service`, `history_service`, `cloud_summary_service`: Moorage's own routes about changes and the whole cloud.
* `deps`: the dependencies and settings that they share.
* `retention`: the background task that prunes the change log.

They read the forest from `sync.snapshot`, decide with `rules` and `search`, and write through `sync.committer`. They
do not depend on HTTP. Callers: `api.handlers` and the wiring.
"""
