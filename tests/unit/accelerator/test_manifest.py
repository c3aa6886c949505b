"""Signed manifests of bitstreams: one signature covers the data, the region type, the functions and the card."""

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


def properties_with_manifest(described=OF_AES, *, key=KEYS["RSA-PSS"], name="vendor", digest=DIGEST):
    """The properties of an image with a signed manifest that agrees with them."""
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


def published_functions(rig):
    """The published traits for functions of the region."""
    device = next(one for one in devices_as_loaded(rig.held) if any(part.name == R1 for part in one.deployables))
    part = next(part for part in device.deployables if part.name == R1)
    return {trait for trait in traits_of(device, part) if "FUNCTION" in trait}


@pytest.mark.parametrize("kind", KEYS)
def test_a_bitstream_with_a_signed_manifest_is_programmed(rig, keys, kind):
    (keys / "vendor.pem").write_bytes(pem(KEYS[kind]))
    wanted = rig.image(data=DATA, **properties_with_manifest(key=KEYS[kind]))
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
def test_an_image_whose_properties_differ_from_its_manifest_is_refused(rig, instead, words, demanded):
    """Otherwise a user who may change the properties could present a signed bitstream as another one."""
    wanted = rig.image(data=DATA, **(properties_with_manifest() | instead))
    specs = fpga(bitstream=wanted) | ({"accel:bitstream_signature": "required"} if demanded else {})
    if words is None:
        rig.plug(new_instance(), specs, R1)
    else:
        refused(rig, SignatureRejected, words, specs)


def test_a_manifest_with_another_region_type_is_refused(rig):
    wanted = rig.image(
        data=DATA, **(properties_with_manifest({**OF_AES, "region_uuid": TYPE_R2}) | {"region_uuid": TYPE_R1})
    )
    refused(rig, SignatureRejected, f"region_uuid is {TYPE_R1}, but its manifest says {TYPE_R2}")
    assert wanted


def test_a_manifest_with_the_digest_of_other_data_is_refused(rig):
    rig.image(data=DATA, **properties_with_manifest(digest="0" * 128))
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
        (properties_with_manifest(key=STRANGER), SignatureRejected, "does not match this manifest and key"),
        (properties_with_manifest(name="unheard"), SignatureRejected, "not known on this host; .*put unheard.pem"),
        (properties_with_manifest(name="../vendor"), SignatureRejected, "letters, digits"),
    ],
)
def test_a_manifest_that_cannot_be_verified_is_refused_with_the_reason(rig, instead, kind, words):
    rig.image(data=DATA, **(properties_with_manifest() | instead))
    refused(rig, kind, words)
    refused(rig, kind, words, fpga(function=AES))


def test_the_signature_of_data_is_not_accepted_as_the_signature_of_a_manifest(rig):
    text = properties_with_manifest()["bitstream_manifest"]
    given = properties(method="SHA-512")["img_signature"]
    rig.image(data=text.encode(), **(OF_AES | {"bitstream_manifest": text, "bitstream_manifest_signature": given}))
    refused(rig, SignatureRejected, "does not match this manifest and key")


def test_a_signature_of_the_data_alone_does_not_meet_the_requirement_unless_an_option_allows_it(rig, keys):
    """It does not cover the function, which any user with access to the properties can change."""
    wanted = rig.image(data=DATA, **OF_AES, **properties())
    words = "covers only the data, but not region_uuid, function_uuid or the card"
    refused(rig, SignatureRejected, words)
    with_keys(rig, keys, always=True)
    refused(rig, SignatureRejected, words, fpga(function=AES))
    with_keys(rig, keys, of_data_suffices=True)
    rig.plug(new_instance(), WANTED, R1)
    assert rig.carries(R1) == wanted


def test_if_signatures_are_always_required_only_functions_in_a_signed_manifest_become_traits(rig, keys):
    with_keys(rig, keys, always=True, of_data_suffices=True)
    rig.image(data=DATA, **OF_AES, **properties())
    first = new_instance()
    rig.plug(first, fpga(function=AES), R1)
    assert published_functions(rig) == set()
    rig.unplug(first)
    rig.image(
        data=DATA + b"!",
        **properties_with_manifest(OF_AES | {"function_uuid": SHA}, digest=hashlib.sha512(DATA + b"!").hexdigest()),
    )
    rig.plug(new_instance(), fpga(function=SHA), R1)
    assert any(SHA.replace("-", "_").upper() in trait for trait in published_functions(rig))


def test_an_unsigned_loaded_bitstream_has_no_function_traits_once_signatures_are_required(rig, keys):
    rig.image(data=DATA, **OF_AES)
    instance = new_instance()
    rig.plug(instance, fpga(function=AES), R1)
    assert published_functions(rig) != set()
    with_keys(rig, keys, always=True)
    rig.agent._programmer.recover_region(R1)
    assert published_functions(rig) == set()
    assert rig.held.region(R1).bitstream.voucher is Voucher.NOBODY
    with_keys(rig, keys)
    rig.agent._programmer.recover_region(R1)
    assert published_functions(rig) != set()


def test_a_loaded_bitstream_gets_its_function_traits_when_its_image_gets_a_manifest(rig, keys):
    with_keys(rig, keys, always=True, of_data_suffices=True)
    wanted = rig.image(data=DATA, **OF_AES, **properties())
    rig.plug(new_instance(), fpga(function=AES), R1)
    assert published_functions(rig) == set()
    rig.directory_of_images.change(wanted, lambda image: replace(image, properties=dict(properties_with_manifest())))
    rig.plug(new_instance(), fpga(function=AES), R1)
    assert (published_functions(rig) != set(), rig.programs()) == (True, [R1])


def test_a_manifest_reads_back_the_same():
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
def test_a_manifest_of_another_structure_is_a_value_error(change):
    with pytest.raises(ValueError, match=r".+"):
        decode_manifest(json.dumps(change(json.loads(encode_manifest(Manifest("vendor", DIGEST, OF_AES))))))


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"key":"a","key":"b"}', "nan", "\ud800"])
def test_a_text_that_is_no_valid_manifest_is_a_value_error(text):
    with pytest.raises(ValueError, match=r".+"):
        decode_manifest(text)


@pytest.mark.parametrize("key", [ed25519.Ed25519PrivateKey.generate(), rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP256K1())])  # fmt: skip
def test_a_key_that_hosts_do_not_accept_cannot_sign_a_manifest(key):
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


def test_an_image_with_the_properties_that_bitstream_sign_prints_is_programmed(rig, keys, tmp_path):
    (keys / "vendor.pem").write_bytes(pem(KEYS["ECC_SECP256R1"]))
    more = ("--function-name", "aes", "--json")
    said = json.loads(command(tmp_path, *USUAL, *more, passphrase=b"secret", answers="secret\n").stdout)
    assert said["function_name"] == "aes"
    wanted = rig.image(data=DATA, **said)
    rig.plug(new_instance(), WANTED, R1)
    assert rig.carries(R1) == wanted


def test_without_json_bitstream_sign_prints_arguments_for_the_openstack_client(tmp_path):
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
def test_bitstream_sign_refuses_arguments_that_hosts_would_not_accept(tmp_path, arguments, words):
    outcome = command(tmp_path, *arguments)
    assert outcome.exit_code != 0
    assert words in str(outcome.exception)
