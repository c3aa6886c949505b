"""The resource types that can be reserved, one module each, with the rules that differ between types.

    name of a type -> registry -> wanted (its demand on hosts), changed (an update), the steps of its events

`base` defines what a type must provide: its demand on hosts, the changes that it accepts, and the steps of its
events. `registry` finds a type by its name: `physical_host`, `virtual_instance`, `flavor_instance`, `resource_any`,
`floating_ip`. The steps themselves are carried out in `moorage.reservation.steps`.
Callers: `booking`, `leases`, `capacity.lease_update` and `capacity.step_plans`.
"""
