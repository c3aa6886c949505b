"""The accounts in the database and in memory.

In it: the tables (`tables`), the SQL statements (`account_store`), and all accounts in memory with the one way to
change them (`account_database`).
Not in it: which changes are possible (`moorage.identity.accounts.account_rules`).
Callers: `moorage.identity.embedded` holds the database; `moorage.identity.first_start` fills it.
"""
