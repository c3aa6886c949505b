"""With random hostile flavors and images, a plug attaches an accelerator or raises a typed error.

A programmed bitstream must have been verified. A plug that fails must not change the checkpoint, the devices, the cache
or the providers in Placement.

Each run tries two thousand extra specs and image documents, a hundred per example; with `EXPLORE=1` ten thousand.
Hypothesis draws only the seed of a document: composing it from strategies would take ten times as long as the tests.
"""

import contextlib
import hashlib
import os
from dataclasses import replace
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import os_acc
from moorage.accelerator.host.agent_api import wsgi_app
from moorage.accelerator.model.device_history import Journal
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.core.names import is_custom
from moorage.images.base import ImageRecord, PublicView
from moorage.images.glance import GlanceImages
from moorage.wire.client import NoCredentials, ServiceClient
from moorage.wire.transports import InProcessTransport
from os_acc import exception
from tests.unit.accelerator.rig import AES, GPU, PROJECT, R1, R2, SHA, TYPE_R1, TYPE_R2, Rig, rp

EXAMPLES, DOCUMENTS = 50 if os.environ.get("EXPLORE") else 10, 100

INSTANCE = {"uuid": "00000000-0000-4000-8000-000000000001", "name": "vm", "project_id": PROJECT}
DATA = b"bits " * 100
DIGEST = hashlib.sha512(DATA).hexdigest()
IMAGE = "3f0e7f4e-6a51-4d0f-9d28-6f2e0a9a5c01"

#: Hostile values in place of a name, an id, a path or a number.
NASTY = [
    "", " ", "0", "-1", "1.5", "1e9", "9" * 12, "9" * 5000, "٣", "0x10", "None", "null", "[]", "{}", "\x00", "a\x00b",
    ".", "..", "../../../../etc/passwd", "/etc/passwd", "%2e%2e%2fimages", "file:///etc/passwd", "a/b", "a\\b", "-rf",
    "$(id)", "'; DROP TABLE devices; --", "\r\nX-Auth-Token: x", "\u202e", "💥" * 30, "ß", "A" * 64, "A" * 65, "A" * 256,
    "A" * 70_000, "CUSTOM_", "custom_x", ",", ",,,", ",".join(f"f{number}" for number in range(500)),
]  # fmt: skip
LONE_SURROGATE = "\ud800"  # JSON from an image service cannot contain it, but a caller of the library can pass it


def text(random: Random) -> str:
    if random.random() < 0.7:
        return random.choice(NASTY)
    return "".join(chr(random.choice((random.randrange(128), random.randrange(0xD800)))) for _ in range(4))


def mostly(random: Random, usual, odd):
    """Usually one of `usual`, sometimes one of `odd` or any text."""
    if random.random() < 0.8:
        return random.choice(usual)
    return text(random) if odd is None else random.choice(odd)


class FakeImages:
    """An image service that returns the images and the chunks of data that a test sets."""

    def __init__(self) -> None:
        self.images: list[ImageRecord] = []
        self.chunks: list[bytes] = []

    def find(self, _view, properties):
        return [one for one in self.images if properties.items() <= one.properties.items()]

    def get(self, _view, image_id):
        return next((one for one in self.images if one.id == image_id), None)

    @contextlib.contextmanager
    def open(self, _view, _image_id):
        yield iter(self.chunks)


@pytest.fixture
def host(tmp_path, monkeypatch):
    """One host for all documents, because each must leave it unchanged."""
    monkeypatch.setattr("os.fsync", lambda _: None)  # durability takes most of the time, and no power fails here
    monkeypatch.setattr("os.fdatasync", lambda _: None)
    monkeypatch.setattr("moorage.durable._replace", lambda path, content, **_: path.write_bytes(content))
    rig = Rig(tmp_path)
    rig.images = FakeImages()
    rig.agent.close()
    rig.restart()
    rig.client = os_acc.Client(InProcessTransport(wsgi_app(rig.agent, RandomIds())), clock=SystemClock())
    before = rig.agent.nodes()
    yield rig
    rig.check()
    assert rig.agent.nodes() == before, "the providers for Placement have changed"
    assert {path.name for path in tmp_path.iterdir()} == {"agent", "cache", "images", "sim"}
    assert {path.name for path in (tmp_path / "cache").iterdir()} <= {"locks", DIGEST}


def held(host):
    """The agent's state without its journal."""
    return replace(host.held, journal=Journal())


def state_and_devices(host):
    devices = host.directory / "sim" / "devices.json"
    return held(host), devices.read_bytes() if devices.exists() else b""


def plug_and_unplug(host, selected, specs):
    """Plugs, checks what the plug did, and unplugs; returns the devices or the error."""
    before = state_and_devices(host)
    host.watch.arm(None)
    try:
        answer = host.client.plug(INSTANCE, selected, specs)
    except exception.OsAccException as error:
        answer = error
    if isinstance(answer, list):
        programmed = [host.held.region(name).bitstream for name in host.programs()]
        assert {bitstream.digest for bitstream in programmed} <= {DIGEST}, "programmed without verification"
        traits = set().union(*(node.traits for node in host.agent.nodes()))
        assert all(map(is_custom, traits - {"OWNER_CYBORG"})), "Placement would refuse the whole host"
        regions = host.programs()
        assert host.client.unplug(INSTANCE) == len(answer)
        for name in regions:
            host.simulated.program(name, None, None)
            host.agent._programmer.recover_region(name)
    else:
        assert type(answer) is not exception.OsAccException, f"no type for {answer}"
        assert [event for event in host.watch.events if event[0] != "checkpoint"] == [], "a device was touched"
        assert state_and_devices(host) == before
    assert held(host) == before[0]
    return answer


# --------------------------------------------------------------------------------------------- flavors

KINDS = ["resources", "trait", "accel", "bitstream", "function", "function_name", "hw", "Resources"]
NAMES = [
    "CUSTOM_ACCELERATOR_FPGA",
    "CUSTOM_ACCELERATOR_GPU",
    "bitstream_id",
    "function_id",
    "function_name",
    AES,
    IMAGE,
]
ASKS = [
    {},
    {"resources:CUSTOM_ACCELERATOR_FPGA": "1"},
    {"resources1:CUSTOM_ACCELERATOR_GPU": "1"},
    {"resources:CUSTOM_ACCELERATOR_FPGA": "1", f"function:{AES}": "required"},
]


def extra_specs(random: Random) -> dict[str, str]:
    """One of `ASKS`, with some values changed and some keys added."""
    specs = dict(random.choice(ASKS))
    for key in random.sample(sorted(specs), random.randrange(len(specs) + 1)):
        specs[key] = text(random)
    for _ in range(random.randrange(3)):
        suffix = mostly(random, ["", "1", "_A"], None)
        name = random.choice([":", ":", ":", "", "::"]) + mostly(random, NAMES, None)
        value = mostly(
            random, ["1", "required", AES, IMAGE, f"CUSTOM_FPGA_INTEL_FUNCTION_{AES}"], [LONE_SURROGATE, *NASTY]
        )
        specs[f"{random.choice(KINDS)}{suffix}{name}"] = value
    return specs


def selection(random: Random) -> dict[str, object]:
    usual = [{"uuid": rp(R1)}, {"": [rp(R1)], "1": [rp(GPU)], "_A": [rp(R2)]}]
    odd = [{}, {"uuid": text(random)}, {text(random): [rp(R1)]}, {"": [text(random)]}, {"": rp(R1)}, {"": []}, {"": 7}]
    return mostly(random, usual, odd)


@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.generate])
@given(number=st.integers(0))
def plug_random_flavors(host, number):
    random = Random(number)
    host.images.images, host.images.chunks = [image()], [DATA]
    for _ in range(DOCUMENTS):
        plug_and_unplug(host, selection(random), extra_specs(random))


def test_a_plug_with_random_extra_specs_succeeds_or_fails_without_changing_the_host(host):
    plug_random_flavors(host)


# ---------------------------------------------------------------------------------------------- images


def image(**other) -> ImageRecord:
    usual = {
        "id": IMAGE, "name": "aes", "visibility": "public", "owner": PROJECT, "status": "active", "size_bytes": len(DATA),
        "hash_algo": "sha512", "hash_value": DIGEST, "properties": {"region_uuid": TYPE_R1, "function_uuid": AES},
        "tags": frozenset({"FPGA"}),
    }  # fmt: skip
    return ImageRecord(**{**usual, **other})


PROPERTIES = [
    "region_uuid", "function_uuid", "function_name", "accel:function_id", "vendor", "board", "shell_id", "driver_path",
    "driver", "bs-name", "../x", "", "topology",
]  # fmt: skip
ODD = {
    "id": NASTY,
    "visibility": ["community", "community", "private", "", "PUBLIC"],
    "owner": ["", "2" * 32],
    "status": ["queued", "deactivated", "", "ACTIVE"],
    "size_bytes": [None, 0, -1, len(DATA) - 1, 1 << 23, 1 << 60],
    "hash_algo": [None, "", "md5", "SHA512"],
    "hash_value": [DIGEST.upper(), None, "", DIGEST[:-1], "0" * 128, "../" * 42 + "xx", "g" * 128, f"{DIGEST}\n"],
}
STREAMS = [[], [b""], [DATA, b"!"], [DATA[:-1]], [b"\0" * 4096] * 8, [DATA[:7], DATA[7:]], [DATA.upper()]]
WISHES = [
    f"function:{AES}", f"function:{AES}", f"bitstream:{IMAGE}", f"bitstream:{IMAGE}", f"function:{SHA}", "function_name:f1",
    "function_name:../../../../etc/passwd", "bitstream:..",
]  # fmt: skip


def uploaded(random: Random) -> ImageRecord:
    """A valid image with some wrong properties."""
    properties = {"region_uuid": TYPE_R1, random.choice(["function_uuid", "accel:function_id"]): AES}
    odd: dict[str, object] = {}
    for field in random.sample(sorted(ODD), random.randrange(3)):
        odd[field] = random.choice(ODD[field])
    for name in random.sample(PROPERTIES, random.randrange(3)):
        properties[name] = mostly(random, [TYPE_R1, TYPE_R2, AES, SHA, f"{AES},{SHA}", "intel"], None)
    return image(name=text(random), properties=properties, **odd)


@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.generate])
@given(number=st.integers(0))
def plug_random_images(host, number):
    random = Random(number)
    for _ in range(DOCUMENTS):
        host.images.images = [uploaded(random) for _ in range(random.choice([1, 1, 1, 2]))]
        host.images.chunks = random.choice([[DATA]] * len(STREAMS) + STREAMS)
        wish = random.choice(WISHES)
        plug_and_unplug(host, {"uuid": rp(R1)}, {"resources:CUSTOM_ACCELERATOR_FPGA": "1", wish: "required"})


def test_a_plug_with_random_image_metadata_programs_verified_data_or_fails(host):
    plug_random_images(host)


def test_a_valid_request_for_a_function_or_bitstream_is_plugged(host):
    """Otherwise the tests above could pass by refusing everything."""
    host.images.images, host.images.chunks = [image()], [DATA]
    for wish in (f"function:{AES}", f"bitstream:{IMAGE}"):
        answer = plug_and_unplug(host, {"uuid": rp(R1)}, {"resources:CUSTOM_ACCELERATOR_FPGA": "1", wish: "required"})
        assert answer == [{"pci_id": "0000:3b:00.1"}]


@pytest.mark.parametrize("image_id", ["", ".", ".."])
def test_an_image_id_that_is_empty_or_only_dots_is_not_requested_and_not_found(image_id):
    """URL quoting keeps dots and HTTP clients resolve them, so ``/v2/images/..`` would request another resource."""
    nowhere = InProcessTransport(lambda environ, start_response: pytest.fail(f"asked for {environ['PATH_INFO']}"))
    images = GlanceImages(ServiceClient(nowhere, service_type="image", credentials=NoCredentials()))
    assert images.get(PublicView(), image_id) is None


@pytest.mark.parametrize("parameters", [0, 1, 2])
def test_a_parameter_that_contains_itself_is_a_bad_request(host, parameters):
    endless: dict = {}
    endless["uuid"] = endless
    asked = [INSTANCE, {"uuid": rp(R1)}, {"resources:CUSTOM_ACCELERATOR_FPGA": "1"}]
    asked[parameters] = endless
    with pytest.raises(exception.BadRequest):
        host.client.plug(*asked)
