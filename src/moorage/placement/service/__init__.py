"""Use cases, one module per subject; `service.PlacementService` holds them all.

* `provider_service`, `name_service`, `allocation_service`: reads and writes of the Placement API.
* `search_service`: allocation candidates, filtered provider lists, explanations, and views of the whole cloud.
* `event_service`, `history_service`: Moorage's own routes about changes, and the background task that prunes the log.
* `deps`: the dependencies and settings that they share.

They read the forest from `sync.snapshot`, decide with `rules` and `search`, and write through `sync.committer`. They
do not depend on HTTP. Callers: `api.handlers` and the wiring.
"""
