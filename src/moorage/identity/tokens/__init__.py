"""Tokens and passwords of our own identity service: what a login checks, and what it returns.

In it: signed tokens (`signed_tokens`), the keys that sign them (`keys`), tokens that ended early (`revocations`),
passwords and their hashes (`passwords`), and the delay of failed logins (`throttle`).
Not in it: accounts, and the decision about a login (`moorage.identity.embedded`).
Callers: `moorage.identity.embedded`; the CLI rotates keys.
"""
