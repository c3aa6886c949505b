"""Drivers that run the tools of OPAE and XRT: arguments, and tools that fail, hang or print invalid output."""

import time

import pytest

from moorage.accelerator.drivers import opae, xrt
from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.drivers.vendor_cli import ToolFailed, ToolMissing, ToolOutputInvalid, ToolTimeout, VendorTool
from moorage.accelerator.host.device_registry import DeviceRegistry
from moorage.accelerator.model.devices import Health, RegionState
from moorage.core.errors import Invalid
from tests.unit.accelerator.drivers.benches import AES, FACTORY, FPGA, REGION_TYPE, SHA
from tests.unit.accelerator.drivers.bits import bitstream_of, gbs, opened, xclbin
from tests.unit.accelerator.drivers.fake_tools import FakeTools
from tests.unit.accelerator.drivers.sysfs_tree import Tree

ALVEO = "0000:b3:00.0"


@pytest.fixture
def tools(tmp_path):
    cards = {
        FPGA: {"type": REGION_TYPE, "shown": FACTORY},
        ALVEO: {"type": REGION_TYPE},
        "0000:b3:00.1": {"shown": "0" * 32},
    }
    return FakeTools(tmp_path / "tools", cards)


@pytest.fixture
def tree(tmp_path):
    tree = Tree(tmp_path / "sys")
    tree.bind_nothing_to("vfio-pci")
    tree.add(FPGA, "8086:09c4", driver="intel-fpga-pci")
    tree.add(ALVEO, "10ee:5020", driver="xclmgmt")
    tree.add("0000:b3:00.1", "10ee:5021", driver="xocl")
    return tree


@pytest.fixture
def pac(tree, tools, tmp_path):
    look, load = opae.fpgainfo(tools.path, 5.0), opae.fpgaconf(tools.path, 5.0)
    return opae.OpaeDriver(tmp_path / "state", (), tree.sysfs(), look, load)


@pytest.fixture
def alveo(tree, tools, tmp_path):
    return xrt.XrtDriver(tmp_path / "state", (), tree.sysfs(), xrt.xbmgmt(tools.path, 5.0), xrt.xbutil(tools.path, 5.0))


def test_an_opae_card_is_one_region_with_the_type_that_fpgainfo_prints(pac, tools):
    (card,) = pac.discover()
    (part,) = card.deployables
    assert (part.name, part.region_type, part.handles) == (f"{FPGA}_R1", REGION_TYPE, (FPGA,))
    identified = pac.identify(part.name)
    assert [one.id for one in identified.bitstream.functions] == [FACTORY]
    words = ["--segment", "0x0000", "--bus", "0x3b", "--device", "0x00", "--function", "0x0"]
    assert tools.runs()[0][:2] == ("fpgainfo", ["fme", *words])


def test_the_file_for_fpgaconf_is_not_named_by_the_image(pac, tools, tmp_path):
    """R23"""
    bitstream, data = bitstream_of(gbs(REGION_TYPE, AES), "../../evil; rm -rf", AES)
    pac.program(f"{FPGA}_R1", bitstream, opened(data))
    words, environment = next(run[1:] for run in tools.runs() if run[0] == "fpgaconf")
    assert words[-1] == f"{tmp_path}/state/staging/0000-3b-00.0_R1.gbs"
    assert set(environment) <= {"PATH", "LC_ALL", "LC_CTYPE", "PWD", "SHLVL", "_"}
    assert list((tmp_path / "state" / "staging").iterdir()) == []


def test_an_alveo_card_is_managed_by_its_first_function_and_attached_by_its_second(alveo, tools):
    """Cyborg offers both functions, so two guests can get the same card."""
    (card,) = alveo.discover()
    (part,) = card.deployables
    assert (card.pci_id, part.handles, part.region_type) == (ALVEO, ("0000:b3:00.1",), REGION_TYPE)
    assert alveo.identify(part.name).bitstream is None
    bitstream, data = bitstream_of(xclbin(AES), "image", AES)
    alveo.program(part.name, bitstream, opened(data))
    assert ["program", "--device", "0000:b3:00.1", "--user"] in [run[1][:4] for run in tools.runs()]


@pytest.mark.parametrize(
    ("how", "error"),
    [("fails", ToolFailed), ("rubbish", ToolOutputInvalid), ("endless", ToolOutputInvalid), ("hangs", ToolTimeout)],
)
@pytest.mark.parametrize("driver", ["pac", "alveo"])
def test_a_tool_that_fails_hangs_or_prints_invalid_output_is_a_typed_error(driver, how, error, request, tools):
    driver = request.getfixturevalue(driver)
    for name in ("_fpgainfo", "_xbmgmt"):
        if (tool := getattr(driver, name, None)) and how == "hangs":
            setattr(driver, name, VendorTool(tool.name, tool.forms, tool.path, 0.5))
    tools.behave(how)
    with pytest.raises(error) as raised:
        driver.discover()
    assert ("ended with 3: Error: the card does not answer" in raised.value.message) == (how == "fails")


@pytest.mark.parametrize("how", ["hangs", "silent"])
def test_a_tool_that_hangs_is_killed_with_its_child_processes(tools, how):
    """A child may keep the pipes open, so that waiting for their end would mean waiting for the child."""
    tools.behave(how)
    begin = time.monotonic()
    with pytest.raises(ToolTimeout, match=r"within 0\.5 s"):
        opae.fpgainfo(tools.path, 0.5).run("fme", bdf=FPGA)
    assert time.monotonic() - begin < 60  # both sleep for 600 s unless they are killed


def test_the_error_of_a_missing_tool_names_the_searched_path(tree, tmp_path):
    driver = opae.OpaeDriver(tmp_path, (), tree.sysfs(), opae.fpgainfo(str(tmp_path)))
    with pytest.raises(ToolMissing, match="fpgainfo is not installed in"):
        driver.discover()


def test_a_driver_whose_tool_fails_marks_only_its_own_devices_unknown(pac, alveo, tools):
    fleet = DeviceRegistry([pac, alveo])
    before = fleet.discover((), frozenset())
    assert {device.health for device in before} == {Health.OK}
    tools.behave("fails", "fpgainfo")
    after = {device.pci_id: device.health for device in fleet.discover(before, frozenset())}
    assert after == {FPGA: Health.UNKNOWN, ALVEO: Health.OK}


@pytest.mark.parametrize("how", ["fails", "rubbish", "lies"])
def test_a_region_is_unknown_if_the_card_does_not_show_the_new_bitstream(pac, tools, how):
    """The exit code of the tool does not count, only the function that the card shows afterwards."""
    bitstream, data = bitstream_of(gbs(REGION_TYPE, AES), "image", AES)
    tools.behave(how, "fpgaconf")
    with pytest.raises(DriverError):
        pac.program(f"{FPGA}_R1", bitstream, opened(data))
    assert pac.identify(f"{FPGA}_R1").state is RegionState.UNKNOWN
    tools.behave("")
    pac.program(f"{FPGA}_R1", bitstream, opened(data))
    assert pac.identify(f"{FPGA}_R1").bitstream == bitstream


def test_a_bitstream_that_others_loaded_with_xbutil_is_identified_by_its_function_only(alveo):
    bitstream, data = bitstream_of(xclbin(AES), "image", AES)
    alveo.program(f"{ALVEO}_R1", bitstream, opened(data))
    by_hand, _ = bitstream_of(xclbin(SHA), "other", SHA)
    alveo._xbutil.run("load", bdf="0000:b3:00.1", file=_file(alveo, xclbin(SHA)))
    found = alveo.identify(f"{ALVEO}_R1").bitstream
    assert (found.digest, found.functions) == ("", by_hand.functions)


def _file(driver, data):
    path = driver._directory / "by-hand.xclbin"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("bdf", ["0000:3b:00.0; id", "$(id)", "--help", "3b:00.0", "0000:3b:00.0\n", "-0000:3b:0.0"])
def test_a_text_that_is_no_pci_address_is_never_passed_to_a_tool(bdf, tools):
    with pytest.raises(Invalid, match="not a PCI address"):
        opae.fpgainfo(tools.path).run("fme", bdf=bdf)
    assert tools.runs() == []


@pytest.mark.parametrize("name", ["$(id).gbs", "a b.gbs", "-f.gbs\n"])
def test_a_file_name_with_special_characters_is_never_passed_to_a_tool(name, tools, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"")
    for file in (path, tmp_path / "absent.gbs", tmp_path):
        with pytest.raises(DriverError, match="cannot be passed to fpgaconf"):
            opae.fpgaconf(tools.path).run("load", bdf=FPGA, file=file)
    assert tools.runs() == []


def test_only_the_listed_commands_of_a_tool_can_be_run(tools):
    with pytest.raises(KeyError):
        opae.fpgaconf(tools.path).run("flash", bdf=FPGA)
    allowed = {tool.name: set(tool.forms) for tool in (opae.fpgainfo(), opae.fpgaconf(), xrt.xbmgmt(), xrt.xbutil())}
    assert allowed == {
        "fpgainfo": {"fme", "port"},
        "fpgaconf": {"load"},
        "xbmgmt": {"platform"},
        "xbutil": {"regions", "load"},
    }
