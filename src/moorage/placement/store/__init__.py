"""SQL on placement's tables. Nothing here decides.

* `tables`: the schema. `provider_store`, `holding_store`, `name_store`: reads of providers, allocations and names.
* `write_set_sql`: writes the difference between the states that a write found and those that it leaves.
* `change_log`: takes the next change number and appends entries. `change_store`: reads and prunes the log.
* `writer_lease`: the lease under which one process alone writes, and the row it is kept in.

Callers: `sync` and `service`. Migrations are in `placement.migrations`.
"""
