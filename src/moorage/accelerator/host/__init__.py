"""The accelerator agent of one host: discovery, attach and release, programming, and its HTTP interface for `os_acc`.

::

    os_acc --> agent_api --> AcceleratorAgent (agent) --> AttachEngine (attach) --> Programmer (programming)
                                   |                            |                       |
                                   v                            v                       +-> bitstream_lookup, signatures
                             DeviceRegistry    Checkpoint (one durable file per host)   +-> drivers

`cleaning` cleans what `attach` has released, and `reporting` sends the reports to the central service. Each step is
decided by `model.attach_state`, written to the checkpoint, and only then performed on the device.
Not here: the provider tree (`moorage.agent.tree`) and the bytes of images (`moorage.images`).
Callers: `moorage.wiring.host` builds one agent per host; the host's resource tracker calls `nodes` and `published`, and
its job worker `bind`, `unbind` and `program`.
"""
