"""Intel's FPGA cards through the tools of the Open Programmable Acceleration Engine: `fpgainfo` reads, `fpgaconf`
loads.

For hosts without the kernel driver that `fpga_dfl` uses. A card has one region; its handle is the first virtual
function, or the card.
Source: the manual pages of both tools.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from moorage.accelerator.drivers.bitstream_headers import BitstreamHeader, read_gbs_header
from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec, Functions
from moorage.accelerator.drivers.fpga import FpgaDriver, FpgaRegion
from moorage.accelerator.drivers.sysfs import PciFunction, Sysfs
from moorage.accelerator.drivers.vendor_cli import ToolOutputInvalid, VendorTool
from moorage.accelerator.model.devices import DeviceType
from moorage.accelerator.model.naming import canonical_id
from moorage.core.ids import is_uuid

PATH = "/usr/bin:/usr/local/bin"
_CARD = ("--segment", "{segment}", "--bus", "{bus}", "--device", "{device}", "--function", "{function}")

#: Reading takes about a second, loading a large bitstream about ten.
READ_TIMEOUT_S = 30.0
LOAD_TIMEOUT_S = 180.0

_LINE = re.compile(r"^\s*(?P<name>[A-Za-z][A-Za-z .:]*?)\s*:\s*(?P<value>\S.*?)\s*$")


def fpgainfo(path: str = PATH, timeout_s: float = READ_TIMEOUT_S) -> VendorTool:
    return VendorTool("fpgainfo", {"fme": ("fme", *_CARD), "port": ("port", *_CARD)}, path, timeout_s)


def fpgaconf(path: str = PATH, timeout_s: float = LOAD_TIMEOUT_S) -> VendorTool:
    return VendorTool("fpgaconf", {"load": (*_CARD, "{file}")}, path, timeout_s)


class OpaeDriver(FpgaDriver):
    name = "opae"
    suffix = ".gbs"
    default_specs = (DeviceSpec(vendor="8086", kind="1200", type=str(DeviceType.FPGA), functions=str(Functions.ANY)),)

    def __init__(
        self,
        directory: Path,
        specs: Sequence[DeviceSpec] = (),
        sysfs: Sysfs | None = None,
        look: VendorTool | None = None,
        load: VendorTool | None = None,
    ) -> None:
        super().__init__(directory, specs, sysfs)
        self._fpgainfo = look or fpgainfo()
        self._fpgaconf = load or fpgaconf()

    def _discover_regions(self, card: PciFunction, spec: DeviceSpec) -> Sequence[FpgaRegion]:
        handles = card.virtual_functions[:1] if spec.uses_virtual_functions(card) else (card.address,)
        region_type = _uuid_named("Pr Interface Id", self._fpgainfo, "fme", card.address)
        return [FpgaRegion(card.address, 1, region_type, handles)]

    def _loaded_id(self, region: FpgaRegion) -> str:
        """The port belongs to the virtual function, if there is one, and cannot be read while a guest has it."""
        function = self._sysfs.pci_function(region.handles[0])
        if function is None or function.driver == VFIO:
            return ""
        return _uuid_named("Accelerator Id", self._fpgainfo, "port", region.handles[0])

    def _read_header(self, path: Path) -> BitstreamHeader:
        return read_gbs_header(path)

    def _load_file(self, region: FpgaRegion, path: Path, head: BitstreamHeader | None) -> None:
        self._fpgaconf.run("load", bdf=region.address, file=path)


def _uuid_named(name: str, tool: VendorTool, form: str, bdf: str) -> str:
    """The UUID in a line such as ``Accelerator Id             : 9aeffe5f-8457-0612-c000-c9660d824272``."""
    printed = tool.run(form, bdf=bdf)
    found = {match["name"].lower(): match["value"] for line in printed.splitlines() if (match := _LINE.match(line))}
    identity = canonical_id(found.get(name.lower(), ""))
    if not is_uuid(identity):
        raise ToolOutputInvalid(
            f"{tool.name} {form} of {bdf} printed no {name!r}; its output begins with {printed[:100]!r}"
        )
    return identity
