"""Handlers: each decodes a request, calls the service once and encodes the answer.

    request -> a decoder of `schemas` -> one call to a use case of `service` -> an encoder of `schemas` -> answer

`leases` has leases, series, maintenance windows, lists in pages and limits; `availability` has offers, holds, dry
runs and the calendar; `hosts` has hosts and floating IPs, which administrators register; `feeds` has calendar
feeds. Not here: any decision. Only `api.routes` imports them.
"""
