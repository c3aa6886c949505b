"""Selection of hosts, with a dict of slots by host id instead of arrays."""

import numpy as np

from moorage.reservation.capacity import host_selection


def pickup_hosts(slots, ask):
    """`host_selection.pickup_hosts` with `slots` as {host id: number of slots}."""
    hosts = sorted(slots)
    return host_selection.pickup_hosts(hosts, np.array([slots[host] for host in hosts], np.int64), ask)
