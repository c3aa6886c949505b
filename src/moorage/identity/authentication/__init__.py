"""Who sends a request: one authenticator for each [identity] mode, and what a user may do without a token.

    headers -> embedded     EmbeddedTokens -> `EmbeddedIdentity.identify`      -> Caller, or `Unauthorized`
               http_basic   TokensOrBasic -> the same, or a user's password
               keystone     KeystoneTokens (the middleware around the application has asked Keystone)
               none         NoAuth: every caller on this machine is admin

    ids of a user and a project -> membership.caller_now -> Caller with the roles of this moment, or None

In it: the authenticators of our own identity service, of HTTP Basic and of no authentication (`authenticators`), the
one for a real Keystone (`keystone`), and the present roles of a user for work in the user's name (`membership`).
Not in it: how our own tokens are made and checked (`moorage.identity.embedded`), and what a caller may do
(`moorage.identity.policy`).
Callers: `moorage.wiring`.
"""
