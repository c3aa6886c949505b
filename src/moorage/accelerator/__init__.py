"""Devices, what is programmed into them, and who holds which attach handle.

On a host: `agent` (discovers, publishes, serves `os_acc`) with `attach` (the engine), `checkpoint` and `drivers/`.
Centrally: `service` and its routes, the Accelerator API v2. Pure: `devices`, `naming`, `profile`, `bitstream`,
`inventory`, `attach_state`.
"""
