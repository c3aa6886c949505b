"""The accounts in the database and in memory.

    read:    AccountDatabase.accounts() -> is the revision unchanged (asked once a second)? -> the accounts in memory
                                           else -> account_store reads all tables
    change:  AccountDatabase.change(decide) -> next revision, which waits for other writers -> decide(accounts)
                 -> account_store writes the records -> commit -> reads again, so that this process sees the change

In it: the tables (`tables`), the SQL statements (`account_store`), and all accounts in memory with the one way to
change them (`account_database`).
Not in it: which changes are possible (`moorage.identity.accounts.account_rules`).
Callers: `moorage.identity.embedded` holds the database; `moorage.identity.first_start` fills it.
"""
