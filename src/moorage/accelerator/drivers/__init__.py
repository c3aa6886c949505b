"""The drivers: all code that talks to cards. `base` is the contract; `simulated` needs no hardware.

::

    AcceleratorDriver (base)
    |- SimulatedAccelerators (simulated)
    `- PciDriver (pci)            any PCI device; also SR-IOV virtual functions and mediated devices
       |- NvidiaDriver, QatDriver
       `- FpgaDriver (fpga)       cards with regions: stage, check, program, verify
          `- FpgaDflDriver, FpgaManagerDriver (kernel), OpaeDriver, XrtDriver (vendors' tools)

`device_spec` is the operator's list of the devices to give out; `sysfs`, `vendor_cli` and `bitstream_headers` are what
drivers read and run. Not here: who holds a handle (`moorage.accelerator.host`). Callers: `wiring.host` builds the
drivers, `host` calls them through `AcceleratorDriver`.
"""
