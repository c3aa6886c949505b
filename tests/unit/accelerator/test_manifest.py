"""Signed manifests: one signature covers the data, the type of the region, the functions and the card."""

import hashlib
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from moorage.accelerator.host.signatures import SignatureVerifier, sign_manifest
from moorage.accelerator.model.attach_state import devices_as_loaded
from moorage.accelerator.model.bitstream import Manifest, decode_manifest, encode_manifest, manifest_mismatch
from moorage.accelerator.model.devices import Voucher
from moorage.accelerator.model.errors import SignatureMissing, SignatureRejected
from moorage.accelerator.model.naming import traits_of
from moorage.cli.main import cli
from moorage.core.errors import Invalid
from tests.unit.accelerator.rig import AES, R1, SHA, TYPE_R1, TYPE_R2, Rig, fpga, new_instance
from tests.unit.accelerator.test_signatures import DATA, KEYS, STRANGER, WANTED, pem, properties, refused

DIGEST = hashlib.sha512(DATA).hexdigest()
OF_AES = {"region_uuid": TYPE_R1, "function_uuid": AES, "function_name": "aes"}


def manifested(described=OF_AES, *, key=KEYS["RSA-PSS"], name="vendor", digest=DIGEST):
    """The properties of an image that agree with its manifest."""
    text = encode_manifest(Manifest(name, digest, described))
    return {**described, "bitstream_manifest": text, "bitstream_manifest_signature": sign_manifest(text, key)}


@pytest.fixture
def keys(tmp_path):
    directory = tmp_path / "keys"
    directory.mkdir()
    (directory / "vendor.pem").write_bytes(pem(KEYS["RSA-PSS"]))
    return directory


@pytest.fixture
def rig(tmp_path, keys) -> Rig:
    rig = Rig(tmp_path)
    with_keys(rig, keys)
    return rig


def with_keys(rig, keys, **options):
    rig.agent._programmer._signatures = SignatureVerifier(keys, rig.clock, **options)


def published(rig):
    """Traits of the region's functions."""
    device = next(one for one in devices_as_loaded(rig.held) if any(part.name == R1 for part in one.deployables))
    part = next(part for part in device.deployables if part.name == R1)
    return {trait for trait in traits_of(device, part) if "FUNCTION" in trait}


@pytest.mark.parametrize("kind", KEYS)
def test_what_is_signed_with_its_manifest_is_programmed(rig, keys, kind):
    (keys / "vendor.pem").write_bytes(pem(KEYS[kind]))
    wanted = rig.image(data=DATA, **manifested(key=KEYS[kind]))
    rig.plug(new_instance(), WANTED, R1)
    assert rig.carries(R1) == wanted


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        ({"function_uuid": SHA}, f"function_uuid is {SHA}, but its manifest says {AES}"),
        ({"function_uuid": f"{AES},{SHA}"}, "its manifest says"),
        ({"function_name": ""}, r"function_name is \(not given\), but its manifest says aes"),
        ({"accel__function_id": SHA}, r"accel:function_id is .* its manifest says \(not given\)"),
        ({"shell_id": ""}, None),
        ({"board": "PAC_A10"}, r"board is PAC_A10, but its manifest says \(not given\)"),
    ],
)
@pytest.mark.parametrize("demanded", [True, False])
def test_an_image_that_says_something_else_than_its_manifest_is_refused_whoever_asks(rig, instead, words, demanded):
    """Otherwise a user who may write its properties could pass off a signed bitstream as another one."""
    wanted = rig.image(data=DATA, **(manifested() | instead))
    specs = fpga(bitstream=wanted) | ({"accel:bitstream_signature": "required"} if demanded else {})
    if words is None:
        rig.plug(new_instance(), specs, R1)
    else:
        refused(rig, SignatureRejected, words, specs)


def test_a_signed_bitstream_is_not_for_a_region_of_another_type(rig):
    wanted = rig.image(data=DATA, **(manifested({**OF_AES, "region_uuid": TYPE_R2}) | {"region_uuid": TYPE_R1}))
    refused(rig, SignatureRejected, f"region_uuid is {TYPE_R1}, but its manifest says {TYPE_R2}")
    assert wanted


def test_a_manifest_of_other_data_is_refused(rig):
    rig.image(data=DATA, **manifested(digest="0" * 128))
    refused(rig, SignatureRejected, "the data's sha512 is .* but its manifest says 0000")


@pytest.mark.parametrize(
    ("instead", "kind", "words"),
    [
        ({"bitstream_manifest_signature": ""}, SignatureMissing, "it has no bitstream_manifest_signature"),
        ({"bitstream_manifest": ""}, SignatureMissing, "it has no bitstream_manifest; set both"),
        (
            {"bitstream_manifest_signature": "%%%"},
            SignatureRejected,
            "bitstream_manifest_signature is not valid base64",
        ),
        ({"bitstream_manifest": "{"}, SignatureRejected, "cannot be read: it is not valid JSON"),
        (manifested(key=STRANGER), SignatureRejected, "does not match this manifest and key"),
        (manifested(name="unheard"), SignatureRejected, "not known on this host; .*put unheard.pem"),
        (manifested(name="../vendor"), SignatureRejected, "letters, digits"),
    ],
)
def test_a_manifest_that_cannot_be_verified_is_refused_and_says_what_to_do(rig, instead, kind, words):
    rig.image(data=DATA, **(manifested() | instead))
    refused(rig, kind, words)
    refused(rig, kind, words, fpga(function=AES))


def test_the_signature_of_data_is_none_of_a_manifest_nor_the_other_way_round(rig):
    text = manifested()["bitstream_manifest"]
    given = properties(method="SHA-512")["img_signature"]
    rig.image(data=text.encode(), **(OF_AES | {"bitstream_manifest": text, "bitstream_manifest_signature": given}))
    refused(rig, SignatureRejected, "does not match this manifest and key")


def test_a_signature_of_the_data_alone_meets_no_demand_and_says_why(rig, keys):
    """It does not cover the function, which anybody with access to the properties can change."""
    wanted = rig.image(data=DATA, **OF_AES, **properties())
    words = "covers only the data, but not region_uuid, function_uuid or the card"
    refused(rig, SignatureRejected, words)
    with_keys(rig, keys, always=True)
    refused(rig, SignatureRejected, words, fpga(function=AES))
    with_keys(rig, keys, of_data_suffices=True)
    rig.plug(new_instance(), WANTED, R1)
    assert rig.carries(R1) == wanted


def test_where_every_bitstream_must_be_signed_only_what_a_manifest_vouches_for_becomes_a_trait(rig, keys):
    with_keys(rig, keys, always=True, of_data_suffices=True)
    rig.image(data=DATA, **OF_AES, **properties())
    first = new_instance()
    rig.plug(first, fpga(function=AES), R1)
    assert published(rig) == set()
    rig.unplug(first)
    rig.image(
        data=DATA + b"!", **manifested(OF_AES | {"function_uuid": SHA}, digest=hashlib.sha512(DATA + b"!").hexdigest())
    )
    rig.plug(new_instance(), fpga(function=SHA), R1)
    assert any(SHA.replace("-", "_").upper() in trait for trait in published(rig))


def test_what_was_loaded_before_signatures_were_demanded_loses_its_traits_at_the_next_start(rig, keys):
    rig.image(data=DATA, **OF_AES)
    instance = new_instance()
    rig.plug(instance, fpga(function=AES), R1)
    assert published(rig) != set()
    with_keys(rig, keys, always=True)
    rig.agent._programmer.recover_region(R1)
    assert published(rig) == set()
    assert rig.held.region(R1).bitstream.voucher is Voucher.NOBODY
    with_keys(rig, keys)
    rig.agent._programmer.recover_region(R1)
    assert published(rig) != set()


def test_what_is_loaded_already_gets_its_traits_when_its_image_is_signed(rig, keys):
    with_keys(rig, keys, always=True, of_data_suffices=True)
    wanted = rig.image(data=DATA, **OF_AES, **properties())
    rig.plug(new_instance(), fpga(function=AES), R1)
    assert published(rig) == set()
    rig.directory_of_images.change(wanted, lambda image: replace(image, properties=dict(manifested())))
    rig.plug(new_instance(), fpga(function=AES), R1)
    assert (published(rig) != set(), rig.programs()) == (True, [R1])


def test_a_manifest_is_read_as_it_was_written():
    manifest = Manifest("vendor", DIGEST, OF_AES)
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert manifest_mismatch(manifest, DIGEST.upper(), {**OF_AES, "other": "x"}) == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found | {"format": 2},
        lambda found: found | {"more": 1},
        lambda found: {name: value for name, value in found.items() if name != "key"},
        lambda found: found | {"sha512": "AB"},
        lambda found: found | {"sha512": 1},
        lambda found: found | {"properties": []},
        lambda found: found | {"properties": {"os_type": "linux"}},
        lambda found: found | {"properties": {"vendor": 1}},
        lambda found: [found],
    ],
)
def test_what_is_no_manifest_is_a_value_error(change):
    with pytest.raises(ValueError, match=r".+"):
        decode_manifest(json.dumps(change(json.loads(encode_manifest(Manifest("vendor", DIGEST, OF_AES))))))


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"key":"a","key":"b"}', "nan", "\ud800"])
def test_no_text_breaks_the_reading_of_a_manifest(text):
    with pytest.raises(ValueError, match=r".+"):
        decode_manifest(text)


@pytest.mark.parametrize("key", [ed25519.Ed25519PrivateKey.generate(), rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP256K1())])  # fmt: skip
def test_nothing_is_signed_with_a_key_that_no_host_takes(key):
    with pytest.raises(Invalid):
        sign_manifest("{}", key)


# ------------------------------------------------------------------------------------------- moorage bitstream sign


def command(tmp_path, *more, key=KEYS["ECC_SECP256R1"], passphrase=None, answers=None):
    (tmp_path / "image.gbs").write_bytes(DATA)
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    (tmp_path / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    asked = ["bitstream", "sign", str(tmp_path / "image.gbs"), "--key", str(tmp_path / "key.pem"), *more]
    return CliRunner().invoke(cli, asked, input=answers)


USUAL = ("--key-name", "vendor", "--region-uuid", TYPE_R1, "--function-uuid", AES)


def test_what_the_command_prints_are_the_properties_of_an_image_that_hosts_take(rig, keys, tmp_path):
    (keys / "vendor.pem").write_bytes(pem(KEYS["ECC_SECP256R1"]))
    more = ("--function-name", "aes", "--json")
    said = json.loads(command(tmp_path, *USUAL, *more, passphrase=b"secret", answers="secret\n").stdout)
    assert said["function_name"] == "aes"
    wanted = rig.image(data=DATA, **said)
    rig.plug(new_instance(), WANTED, R1)
    assert rig.carries(R1) == wanted


def test_without_json_it_prints_arguments_of_the_client(tmp_path):
    lines = command(tmp_path, *USUAL, "--function-name", "it's").stdout.splitlines()
    assert lines[0] == f"--property region_uuid={TYPE_R1}"
    assert len(lines) == 5
    assert all(line.startswith("--property ") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--key-name", "../x", "--region-uuid", TYPE_R1, "--function-uuid", AES), "letters, digits"),
        (("--key-name", "x", "--region-uuid", "R1", "--function-uuid", AES), "--region-uuid 'R1' is not a UUID"),
        (
            ("--key-name", "x", "--region-uuid", TYPE_R1, "--function-uuid", "aes"),
            "--function-uuid 'aes' is not a UUID",
        ),
        (("--key-name", "x", "--region-uuid", TYPE_R1), "name the function of the bitstream"),
        (("--key-name", "x", "--region-uuid", TYPE_R1, "--function-name", "a,b"), "cannot contain a comma"),
    ],
)
def test_a_manifest_that_no_host_would_take_is_not_made(tmp_path, arguments, words):
    outcome = command(tmp_path, *arguments)
    assert outcome.exit_code != 0
    assert words in str(outcome.exception)
