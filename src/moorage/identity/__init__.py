"""Who is calling, and what they may do.

Here: our own users file with signed tokens and the Keystone v3 routes around it (`embedded`, `service`, `routes`), the
ways to recognise a caller (`authenticators`, `keystone`), rule tables (`policy`), and the client side (`client`).
Not here: which rules a service has; those stand in its `routes.py`.
"""
