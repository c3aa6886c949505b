"""Placement over its public API. Other packages import this folder and nothing else of placement.

* `placement_client`: `PlacementClient`, microversion 1.39; it also works with OpenStack Placement.
* `values`: providers, consumers, candidates and explanations as the client returns them.
* `change_log`: follows the change log, and finds the providers that changed; Moorage only.

Not here: the forest and the rules; a client knows what the API answers. Callers: compute, reservation, the agent, the
audit and the CLI.
"""
