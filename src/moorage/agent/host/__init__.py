"""The agent as a process: how it starts, and which background tasks it runs from then on.

::

    HostAgent.start:  read files -> publish provider tree -> initialize accelerators -> register with compute
    HostAgent.tasks:  heartbeat, provider tree, one `JobsTask` per worker
    DomainsTask:      domains that changed by themselves -> compute; guests that ran before a reboot -> rebooted

`moorage.wiring.host` builds both. Not here: how a tree is published (`agent.tracker`), how a job is done
(`agent.jobs`).
"""
