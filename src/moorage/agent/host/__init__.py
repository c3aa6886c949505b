"""The agent as a process: how it starts, and which background tasks it runs afterwards.

::

    HostAgent.start:  read files -> publish provider tree -> initialize accelerators -> register with compute
    HostAgent.tasks:  heartbeat, provider tree, one `JobsTask` per worker
    DomainsTask:      reports changed domains to compute; reboots the guests that ran before a reboot of the host

`moorage.wiring.host` builds both. Not here: how a tree is published (`agent.tracker`), how a job is done
(`agent.jobs`).
"""
