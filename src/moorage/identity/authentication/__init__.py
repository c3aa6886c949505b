"""Who sends a request: one authenticator for each [identity] mode, and what a user may do without a token.

In it: the authenticators of our own identity service, of HTTP Basic and of no authentication (`authenticators`), the
one for a real Keystone (`keystone`), and the present roles of a user for work in the user's name (`membership`).
Not in it: how our own tokens are made and checked (`moorage.identity.embedded`), and what a caller may do
(`moorage.identity.policy`).
Callers: `moorage.wiring`.
"""
