"""Changes of accounts: domains, projects, users, groups, roles, application credentials, invitations and the catalogue.

    handler -> a service -> account_rules (may it be? what goes with it?) -> one transaction -> tokens that end

In it: a service for each group of routes, and the pure rules (`account_rules`) that all of them ask.
Not in it: who may make a change (`moorage.identity.api.routes`), and how it is written (`moorage.identity.store`).
Callers: `moorage.identity.service`, which holds the services, and the handlers.
"""
