"""The Accelerator API v2 over HTTP, compatible with Cyborg's, with additional routes for agents and operators.

* `routes`    the route table, the policy rules and the shape of errors
* `schemas`   JSON schemas of request bodies
* `handlers`  one function per route: decode, call `moorage.accelerator.service`, encode

Not here: decisions and SQL. Caller: `moorage.wiring.services`.
"""
