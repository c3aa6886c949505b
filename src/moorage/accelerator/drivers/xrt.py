"""AMD's (Xilinx's) Alveo cards through the tools of the Xilinx Runtime: `xbmgmt` and `xbutil`.

A card has two PCI functions: .0 manages it and stays with the host, .1 is the user function and the handle. `xbutil`
loads an .xclbin through the user function while the host has that function, so before it is attached. The card has one
region, whose type is the shell that the .xclbin must fit. The tools write JSON reports to a given file.
Source: XRT's pages on xbmgmt and xbutil, and its report writers for the names in the JSON.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import msgspec

from moorage.accelerator.drivers.bitstream_headers import BitstreamHeader, read_xclbin_header
from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec
from moorage.accelerator.drivers.fpga import FpgaDriver, FpgaRegion
from moorage.accelerator.drivers.sysfs import PciFunction, Sysfs
from moorage.accelerator.drivers.vendor_cli import ToolOutputInvalid, VendorTool
from moorage.accelerator.model.devices import DeviceType
from moorage.accelerator.model.naming import canonical_id
from moorage.core.ids import is_uuid

R = TypeVar("R")

PATH = "/opt/xilinx/xrt/bin"
READ_TIMEOUT_S = 30.0
LOAD_TIMEOUT_S = 240.0


def _examine(report: str) -> tuple[str, ...]:
    return ("examine", "--device", "{bdf}", "--report", report, "--format", "JSON", "--output", "{output}")


def xbmgmt(path: str = PATH, timeout_s: float = READ_TIMEOUT_S) -> VendorTool:
    return VendorTool("xbmgmt", {"platform": _examine("platform")}, path, timeout_s)


def xbutil(path: str = PATH, timeout_s: float = LOAD_TIMEOUT_S) -> VendorTool:
    forms = {"regions": _examine("dynamic-regions"), "load": ("program", "--device", "{bdf}", "--user", "{file}")}
    return VendorTool("xbutil", forms, path, timeout_s)


class _Static(msgspec.Struct):
    logic_uuid: str


class _Platform(msgspec.Struct):
    static_region: _Static


class _Managed(msgspec.Struct):
    platforms: list[_Platform]


class _ManagedReport(msgspec.Struct):
    devices: list[_Managed]


class _Dynamic(msgspec.Struct):
    xclbin_uuid: str = ""


class _Used(msgspec.Struct):
    dynamic_regions: list[_Dynamic] = []


class _UsedReport(msgspec.Struct):
    devices: list[_Used]


class XrtDriver(FpgaDriver):
    name = "xrt"
    suffix = ".xclbin"
    default_specs = (DeviceSpec(vendor="10ee", kind="1200", address="*.0", type=str(DeviceType.FPGA)),)

    def __init__(
        self,
        directory: Path,
        specs: Sequence[DeviceSpec] = (),
        sysfs: Sysfs | None = None,
        manage: VendorTool | None = None,
        use: VendorTool | None = None,
    ) -> None:
        super().__init__(directory, specs, sysfs)
        self._xbmgmt = manage or xbmgmt()
        self._xbutil = use or xbutil()

    def _discover_regions(self, card: PciFunction, spec: DeviceSpec) -> Sequence[FpgaRegion]:
        if self._sysfs.pci_function(user := _user_of(card.address)) is None:
            return ()
        report = self._report(self._xbmgmt, "platform", card.address, _ManagedReport)
        shells = [platform.static_region.logic_uuid for one in report.devices for platform in one.platforms]
        region_type = canonical_id(shells[0]) if len(shells) == 1 else ""
        if not is_uuid(region_type):
            raise ToolOutputInvalid(
                f"xbmgmt reported {shells or 'no'} shells of {card.address}; expected the UUID of exactly one"
            )
        return [FpgaRegion(card.address, 1, region_type, (user,))]

    def _loaded_id(self, region: FpgaRegion) -> str:
        """The tool reports an all-zero UUID if nothing is loaded."""
        user = self._sysfs.pci_function(region.handles[0])
        if user is None or user.driver == VFIO:
            return ""
        report = self._report(self._xbutil, "regions", user.address, _UsedReport)
        loaded = [canonical_id(part.xclbin_uuid) for one in report.devices for part in one.dynamic_regions]
        return next((one for one in loaded if is_uuid(one) and one.strip("0-")), "")

    def _read_header(self, path: Path) -> BitstreamHeader:
        return read_xclbin_header(path)

    def _load_file(self, region: FpgaRegion, path: Path, head: BitstreamHeader | None) -> None:
        self._xbutil.run("load", bdf=region.handles[0], file=path)

    def _card_behind(self, function: PciFunction) -> PciFunction:
        return self._sysfs.pci_function(f"{function.address[:-1]}0") or function

    def _report(self, tool: VendorTool, form: str, bdf: str, kind: type[R]) -> R:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self._directory) as directory:
            output = Path(directory) / "report.json"
            tool.run(form, bdf=bdf, output=output)
            try:
                return msgspec.json.decode(output.read_bytes(), type=kind)
            except FileNotFoundError as error:
                raise ToolOutputInvalid(f"{tool.name} wrote no report on {bdf}") from error
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ToolOutputInvalid(f"{tool.name}'s report on {bdf} cannot be read: {error}") from error


def _user_of(card: str) -> str:
    return f"{card[:-1]}1"
