"""Values, states and decisions of accelerators. Pure: no I/O, no clock, no random ids.

* `devices`, `naming`, `inventory`  devices and their states; traits and resource classes; provider nodes for Placement
* `profile`, `bitstream`  request groups of a flavor's extra specs or a device profile; which image fits a region
* `attach_state`, `nesting`         the attachments of a host and each step; no part of a card is given out twice
* `device_history`, `history_derivation`  records of these steps for operators
* `request`, `binding`, `reports`, `rows`, `errors`  documents on the wire and their checks, rows of tables, errors

Not here: everything that touches a device (`drivers`, `host`), the network or a database (`client`, `store`).
Callers: all other packages of `moorage.accelerator`, the CLI, and `os_acc` (`profile.refers_to_accelerators` only).
"""
