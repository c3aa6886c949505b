"""Choices among a few hosts, by id."""

import numpy as np

from moorage.reservation.capacity import host_selection


def pickup_hosts(slots, ask):
    """`host_selection.pickup_hosts` of {host id: slots}"""
    hosts = sorted(slots)
    return host_selection.pickup_hosts(hosts, np.array([slots[host] for host in hosts], np.int64), ask)
