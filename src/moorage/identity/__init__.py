"""Authentication and policy: who sends a request, and what the caller may do.

    headers -> an authenticator (one per [identity] mode) -> Caller -> RuleTable.allows(rule, caller)

In it: the ways to authenticate a request (`authentication`); our own identity service (`embedded`), which signs tokens
(`tokens`), keeps its accounts in a database and in memory (`model`, `store`) and fills an empty database
(`first_start`); the Keystone v3 API over it (`api`, `service`) and the changes of accounts (`accounts`); the registry
of the hosts that may call (`host_registry`), and the file with which a host calls (`host_credential`); files that are
reread when they change (`watched_files`); the rules that policies are made of (`policy`); and how our services and the
CLI get tokens (`client`).
Not in it: the policy tables of the services, which stand in their `routes`.
Callers: `moorage.wiring` chooses the authenticator; every service's `routes` imports `policy`.
"""
