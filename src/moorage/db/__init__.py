"""Engines, transactions and migrations for SQLite, PostgreSQL and MariaDB. No service's tables are here."""
