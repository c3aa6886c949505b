"""Hypervisors: the `VirtDriver` protocol and its two implementations.

`driver` defines the operations that an agent needs from a hypervisor. `libvirt_driver` runs real guests of QEMU; the
other `libvirt_*` modules are its connection, host, domains, files, images and programs, and `xml` writes and reads
libvirt's XML. `simulated` keeps domains as files, for one machine, rehearsals and tests; `fault_injection` makes it
slow or faulty on demand.

Called by `agent.jobs`, `agent.tracker` and `agent.host`. Importing a `libvirt_*` module needs the libvirt bindings, so
`moorage.wiring.libvirt_host` imports them only where the configuration asks for libvirt.
Not here: accelerator devices, which arrive as PCI addresses or mediated devices in a `DomainSpec`.
"""
