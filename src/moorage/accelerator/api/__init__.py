"""The Accelerator API v2 over HTTP, as Cyborg speaks it, with routes of our own for agents and operators.

* `routes`    the route table, the policy rules and the shape of errors
* `schemas`   JSON schemas of request bodies
* `handlers`  one function per route: decode, call `moorage.accelerator.service`, encode

Not here: decisions and SQL. Caller: `moorage.wiring.services`.
"""
