"""The Keystone v3 API, and our own routes of hosts' credentials.

    request -> routes (the policy rule of the route) -> schema of the body -> handler -> service -> view

In it: the table of routes with their rules (`routes`), the schemas of request bodies (`schemas`), and the
handlers.
Not in it: decisions about logins (`moorage.identity.service`) and about changes (`moorage.identity.accounts`).
Callers: `moorage.wiring` serves the routes.
"""
