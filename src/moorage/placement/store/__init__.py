"""SQL on placement's tables. Nothing here decides.

* `tables`: the schema. `provider_store`, `holding_store`, `name_store`: reads of providers, allocations and names.
* `write_set_sql`: writes the differences between the states before and after a write.
* `change_store`: takes the next change number, and appends, reads and prunes entries of the change log.

Callers: `sync` and `service`. Migrations are in `placement.migrations`.
"""
