"""Choices among a few hosts, by id."""

import numpy as np

from moorage.reservation import pick


def pickup_hosts(slots, ask):
    """`pick.pickup_hosts` of {host id: slots}"""
    hosts = sorted(slots)
    return pick.pickup_hosts(hosts, np.array([slots[host] for host in hosts], np.int64), ask)
