"""Handlers of the identity routes: decode the request, call `IdentityService`, encode in Keystone v3's shapes.

`tokens` has ``/v3/auth``; `accounts` domains, projects, users and groups; `roles` roles and their assignments;
`credentials` application credentials; `catalog` regions, services and endpoints; `hosts` and `users` our own
``/moorage/v1``; `account_views` how records are shown.
Not in it: decisions about tokens and passwords (`moorage.identity.service`). Caller: `moorage.identity.api.routes`.
"""
