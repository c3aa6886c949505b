"""Decides writes: checks each write in the same order as OpenStack Placement. Pure.

    the exact forest + a rule of this package    -> `write_set.WriteSet`: new states of providers and consumers

* `allocation_writes`: claims and releases, and whether they fit.
* `inventory_writes`: inventories, and the reshaper.
* `provider_writes`: creates, moves and deletes providers; sets traits and aggregates.

A rule changes the write set, or raises an error of `core.errors` with the message of OpenStack Placement. It reads no
database and no clock. Callers: the services, through `sync.committer`. `store.write_set_sql` writes the result.
"""
