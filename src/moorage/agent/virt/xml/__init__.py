"""XML of libvirt and of simulated domains, written and read. Pure."""
