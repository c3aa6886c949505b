"""[pure] XML by a hypervisor, or kept by one for this agent: read in one place."""

from xml.etree import ElementTree as ET

from moorage.agent.virt.driver import VirtError


def read_xml(text: str | bytes, what: str) -> ET.Element:
    """Raises `VirtError` for what is no XML; it says of `what`."""
    try:
        # No outsider writes it: libvirt does, which runs as root on this host and escapes whatever name a tenant chose,
        # or this agent did. Against a bomb of entities, all the same, expat has a bound of its own.
        return ET.fromstring(text)  # noqa: S314 - no outsider writes it, and expat bounds entities: see above
    except ET.ParseError as error:
        raise VirtError(f"{what} cannot be read: {error}") from error
