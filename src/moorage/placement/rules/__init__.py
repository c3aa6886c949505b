"""Decides writes: checks each write in the order in which OpenStack Placement checks. Pure.

    the exact forest + a decision of this package -> `write_set.WriteSet`: new states of providers and consumers

* `allocation_writes`: claims and releases; `capacity_check` decides whether they fit.
* `inventory_writes`: inventories, and the reshaper.
* `provider_writes`: creating, moving and deleting providers; traits and aggregates.

A rule raises an error of `core.errors` in the words of OpenStack Placement, or changes the write set. It reads no
database and no clock. Callers: the services, through `sync.committer`. `store.write_set_sql` writes the result.
"""
