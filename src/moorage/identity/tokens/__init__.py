"""Tokens and passwords of our own identity service: the checks of a login and of a token.

    login:    throttle (wait after failures) -> passwords (bcrypt) -> Claims -> TokenSigner.sign_claims -> token
    request:  token -> TokenSigner.read_claims (each key of `keys`, expiry) -> Revocations.covers -> Claims
    logout:   Claims -> Revocations.add_revocation -> a line in the file that all processes read

In it: signed tokens (`signed_tokens`), the keys that sign them (`keys`), tokens that ended early (`revocations`),
passwords and their hashes (`passwords`), and the delay of failed logins (`throttle`).
Not in it: accounts, and the decision about a login (`moorage.identity.embedded`, which calls these).
Callers: `moorage.identity.embedded`; `first_start` and `accounts` hash and check passwords; the CLI rotates keys.
"""
