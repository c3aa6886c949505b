"""The drivers: all code that accesses cards. `base` defines the interface; `simulated` needs no hardware.

::

    AcceleratorDriver (base)
    |- SimulatedAccelerators (simulated)
    `- PciDriver (pci)            any PCI device; also SR-IOV virtual functions and mediated devices
       |- NvidiaDriver, QatDriver
       `- FpgaDriver (fpga)       cards with regions: stage, check, program, verify
          `- FpgaDflDriver, FpgaManagerDriver (kernel), OpaeDriver, XrtDriver (vendors' tools)

`nvme` erases drives between two tenants. `device_spec` reads the operator's list of the devices to give out. `sysfs`,
`vendor_cli` and `bitstream_headers` read the kernel's files, run vendors' programs and read bitstream files. Not here:
who holds a handle (`moorage.accelerator.host`). Callers: `wiring.host` builds the drivers, `host` calls them through
`AcceleratorDriver`.
"""
