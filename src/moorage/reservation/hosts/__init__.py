"""Registered hosts and addresses, and what happens to leases when a host fails.

    host_monitor (task: which hosts are up, by compute; which inventories changed in Placement)
      -> lost_capacity (the slots that have no capacity any more)
      -> healing (moves them off) -> admission (selects hosts) -> an update event with its steps

`host_service` and `floating_ip_service` are the use cases of ``/os-hosts`` and ``/floatingips``.
Not here: the selection of the new hosts (`booking`), and the effects of the steps (`events`). Callers: the handlers,
and `moorage.wiring`, which runs the task.
"""
