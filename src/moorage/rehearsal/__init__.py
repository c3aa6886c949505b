"""Rehearsals: a plane whose clock an administrator can move forward, to see leases start and end.

`clock` keeps the clock's offset in the state directory and serves ``/moorage/v1/clock``. The wiring builds it only with
``[plane] clock = adjustable``; production planes have none of it. The commands `moorage clock` and `moorage status` use
it, too.

Not here: virtual time for tests (`moorage.core.clock`).
"""
