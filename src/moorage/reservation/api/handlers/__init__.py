"""Handlers: each decodes a request, calls the service once and encodes the answer.

`leases` has leases, series, maintenance windows, lists in pages and limits; `availability` has offers, holds, dry
runs and the calendar; `hosts` has hosts and floating IPs, which administrators register. Only `api.routes` imports
them.
"""
