"""Keeps this host's providers in Placement equal to the host's resources.

::

    read Placement -> virt driver -> accelerators -> provider configuration -> diff -> write

`ResourceTracker.update` is one such round; `ResourcesTask` calls it every period and when something changed. The
module `published_state` records this agent's writes, so that it never deletes the entries of other clients;
`placement_tree` reads and writes Placement.
Not here: the pure steps of a round (`agent.tree`, `agent.provider_config.rules`). Called by `agent.host_agent`
and `agent.control`.
"""
