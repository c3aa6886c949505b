"""Engines, transactions, statements and migrations for SQLite, PostgreSQL and MariaDB.

    engine (URL -> SQLAlchemy engine, with the bounds of `timeouts`)
      -> transactions (read, write, retry)     what most stores use
      -> prepared_transactions                 the same, with statements compiled once and sent by the driver itself
      -> single_reads                          one SELECT, one round trip, no transaction around it
      -> statement_pipelines                   a write transaction in as few round trips as possible

`migrations` runs a feature's Alembic files and `upgrades` plans an upgrade of running processes; `importing` reads
another system's database; `types` has the column types.
Not in it: tables, queries and migrations of a feature; they stand in `moorage.<feature>`.
Callers: the `store` modules of every service, `moorage.jobs`, and the database commands of the CLI.
"""
