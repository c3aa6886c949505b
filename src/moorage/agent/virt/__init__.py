"""Hypervisors: the `VirtDriver` protocol and its two implementations.

`driver` defines the operations that an agent needs from a hypervisor. `libvirt_driver` runs real guests of QEMU; the
other `libvirt_*` modules are its connection, calls, host, domains, files and images. `domain_xml` writes and reads
libvirt's XML of domains, `libvirt_capabilities` reads its XML of the host; both are pure. `simulated` keeps domains as
files, for one machine, rehearsals and tests; `fault_injection` makes it slow or faulty on demand.

Called by `agent.jobs`, `agent.tracker`, `agent.host_agent` and `agent.host_reports`. Importing a `libvirt_*` module
needs the libvirt bindings, so `moorage.wiring.libvirt_host` imports them only where the configuration asks for libvirt.
Not here: accelerator devices, which arrive as PCI addresses or mediated devices in a `DomainSpec`.
"""
