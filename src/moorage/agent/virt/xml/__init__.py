"""libvirt's XML: `domain_xml` writes and reads domain definitions, `libvirt_capabilities` reads host capabilities.

Pure: text in, values out. The simulated driver keeps its domains in the same form. Not here: calls to libvirt.
"""
