"""The reservation service: leases over hosts, instances, any resources and floating IPs (Reservation API v1, Blazar).

    api -> service -> leases ----> booking ------------------> capacity
                       |  decides and commits a lease            |
                       v                                         v
                      events -> steps -> Placement, Nova, ...   model
                         run the steps of committed events

A lease is a period with reservations and with the events that start and end it. A request decides on the calendar
(`capacity`), writes allocations under lock without overbooking (`booking`), and leaves an event with a journal of
steps. `events` runs the steps, in the request itself or later in a runner, and continues after a crash.

Not here: the scheduling of servers onto reserved hosts (`moorage.scheduler`) and the programming of FPGAs
(`moorage.accelerator`). Other services use `client` only; `moorage.wiring` builds `service`.
"""
