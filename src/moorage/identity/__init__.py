"""Authentication and policy: who sends a request, and what the caller may do.

    headers -> an authenticator (one per [identity] mode) -> Caller -> RuleTable.allows(rule, caller)

In it: our own identity service, which keeps a users file and signs tokens (`embedded`, `users`, `tokens`, `keys`,
`revocations`, `throttle`) behind a part of the Keystone v3 API (`routes`, `handlers`, `service`); the credentials of
hosts (`hosts`, `host_credential`); the ways to authenticate a request (`authenticators`, `keystone`); the rules that
policies are made of (`policy`); and how our services and the CLI get tokens (`client`).
Not in it: the policy tables of the services, which stand in their `routes`.
Callers: `moorage.wiring` chooses the authenticator; every service's `routes` imports `policy`.
"""
