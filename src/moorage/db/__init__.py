"""Engines, transactions, statements and migrations for SQLite, PostgreSQL and MariaDB.

    engine (URL -> SQLAlchemy engine, with the bounds of `timeouts`)
      -> session                  the one way to run SQL
           transactions           SQLAlchemy's: reads, and writes that are repeated if the database aborts them;
                                  on SQLite through the queue in `group_commit`
           single reads           one SELECT in one round trip, no transaction around it
           pipelines              a write transaction in as few round trips as possible

Single reads and pipelines run on `driver_connections`; `statements` words their SQL for the three databases, and
`errors` translates what the drivers raise. `migrations` runs a feature's migrations and `upgrades` plans an upgrade of
running processes; `importing` imports another system's database; `upserts` has INSERTs of rows that may exist already,
`types` the column types, `database_hosts` finds the writable one of several hosts, and `server_check` finds out that a
server hangs.
Not here: tables, queries and migrations of a feature; they are in `moorage.<feature>`.
Callers: the `store` modules of every service, `moorage.jobs`, and the database commands of the CLI.
"""
