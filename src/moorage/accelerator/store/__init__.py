"""The accelerator database: its tables, its SQL statements, and the gauges that are read from it.

`accelerator_store`, `history_store` and `report_store` contain only statements. Their functions take a connection, and
neither begin nor end a transaction: `moorage.accelerator.service` does. They return rows as the records of
`model.rows`. `meters` reads the gauges at each scrape. There is no pipeline: nothing here decides. Not here: the
schema's migrations (`moorage.accelerator.migrations`).
"""
