"""libvirt's XML: `domain_xml` writes and reads the definition of a domain, `libvirt_capabilities` reads what a host has.

Pure: text in, values out. The simulated driver keeps its domains in the same form. Not here: calls to libvirt.
"""
