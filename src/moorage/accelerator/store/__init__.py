"""The accelerator database: its tables, its SQL statements, and the gauges that are read from it.

`accelerator_store` and `history_store` hold statements only. They take a connection and neither begin nor end a
transaction; that is up to `moorage.accelerator.service`. Rows come back as the records of `model.rows`.
Not here: the schema's migrations (`moorage.accelerator.migrations`).
"""
