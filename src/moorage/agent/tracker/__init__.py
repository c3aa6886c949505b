"""Keeps Placement's providers of this host equal to what the host has.

::

    read Placement -> virt driver -> accelerators -> provider configuration -> diff -> write

`ResourceTracker.update` is one such round; `ResourcesTask` calls it every period and when something changed. The
module `published_state` remembers what this agent has written, so that it never deletes what others wrote.
Not here: the pure steps of a round (`agent.tree`, `agent.provider_config.rules`). Called by `agent.host` and `agent.control`.
"""
