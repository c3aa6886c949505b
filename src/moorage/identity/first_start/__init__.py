"""The first content of the identity database, and the passwords that come with it.

    empty database -> users.yaml of an earlier version, or first users -> records; passwords -> credentials.json

In it: the records (`first_accounts`), the file of an earlier version (`users_file`), and the file with the first
passwords (`first_credentials`), which `moorage env` and the services read.
Not in it: changes of accounts after the first start (`moorage.identity.accounts`).
Callers: `moorage.identity.embedded`; the CLI and `moorage.wiring` read the first passwords.
"""
