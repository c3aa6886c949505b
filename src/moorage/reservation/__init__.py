"""The reservation service: leases over hosts, instances, any resources and floating IPs (Reservation API v1, Blazar).

    api -> service -> leases ----> booking ------------------> capacity
                       |  decides and commits a lease            |
                       v                                         v
                      events -> steps -> Placement, Nova, ...   model
                         carry out what was committed

A lease is a period with reservations and with the events that start and end it. A request decides on the calendar
(`capacity`), writes allocations under lock without overbooking (`booking`), and leaves an event with a journal of
steps. `events` carries the steps out, in the request itself or later in a runner, and survives crashes.

Not here: the scheduling of servers onto reserved hosts (`moorage.scheduler`) and the programming of FPGAs
(`moorage.accelerator`). Other services use `client` only; `moorage.wiring` builds `service`.
"""
