"""Handlers of the identity routes: decode the request, call `IdentityService`, encode in Keystone v3's shapes.

`tokens` has ``/v3/auth``, `accounts` users, projects, roles and the domain, `hosts` our own ``/moorage/v1/hosts``.
Not in it: decisions about tokens and passwords (`moorage.identity.service`).
"""
