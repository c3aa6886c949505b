"""The resource types that can be reserved, one module each, with the rules that differ between types.

`base` defines what a type must provide: its demand on hosts, the changes that it accepts, and the steps of its
events. `registry` finds a type by its name. The steps themselves are carried out in `moorage.reservation.steps`.
"""
