"""The client of the cloud's network service (Neutron). We run no network service of our own.

Callers: `moorage.reservation`, for reservations of floating IPs.
"""
