"""Authentication and policy: who sends a request, and what the caller may do.

    headers -> an authenticator (one per [identity] mode) -> Caller -> RuleTable.allows(rule, caller)

In it: our own identity service, which signs tokens (`embedded`, `tokens`, `keys`, `revocations`, `throttle`) and keeps
its accounts in a database and in memory (`account_database`, `model`, `store`), behind the Keystone v3 API (`routes`,
`handlers`; `service` and a service each for accounts, roles, application credentials and the catalogue; which changes
are possible is in `account_rules`); its first users (`first_accounts`, `first_credentials`, `users_file`); the
credentials of hosts (`hosts`, `host_credential`); the ways to authenticate a request (`authenticators`, `keystone`);
the rules that policies are made of (`policy`); and how our services and the CLI get tokens (`client`).
Not in it: the policy tables of the services, which stand in their `routes`.
Callers: `moorage.wiring` chooses the authenticator; every service's `routes` imports `policy`.
"""
