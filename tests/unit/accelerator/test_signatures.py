"""Signatures of a bitstream's data: required ones are verified, and data with a wrong one is not programmed.

`test_manifest` covers the signatures of manifests.
"""

import base64
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from moorage.accelerator.host.signatures import SignatureVerifier
from moorage.accelerator.model.devices import HandleState
from moorage.accelerator.model.errors import SignatureMissing, SignatureRejected
from moorage.core.errors import StartError
from moorage.jobs.contract import ProgramJob
from tests.unit.accelerator.rig import AES, PROJECT, R1, TYPE_R1, Rig, fpga, new_instance

DATA = b"a bitstream" * 5000
METHODS = {"SHA-224": hashes.SHA224, "SHA-256": hashes.SHA256, "SHA-384": hashes.SHA384, "SHA-512": hashes.SHA512}
KEYS = {
    "RSA-PSS": rsa.generate_private_key(65537, 2048),
    "ECC_SECP256R1": ec.generate_private_key(ec.SECP256R1()),
    "ECC_SECP384R1": ec.generate_private_key(ec.SECP384R1()),
    "ECC_SECP521R1": ec.generate_private_key(ec.SECP521R1()),
}
STRANGER = rsa.generate_private_key(65537, 2048)
WANTED = fpga(function=AES) | {"accel:bitstream_signature": "required"}


def pem(key):
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def certificate(key, begins, ends):
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bitstreams")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(begins).not_valid_after(ends)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def signature(key, method, data=DATA):
    if isinstance(key, rsa.RSAPrivateKey):
        pss = padding.PSS(
            mgf=padding.MGF1(method()), salt_length=padding.PSS.MAX_LENGTH
        )  # as in Glance's documentation of image signing
        return key.sign(data, pss, method())
    return key.sign(data, ec.ECDSA(method()))


def properties(kind="RSA-PSS", method="SHA-256", key=None, name="vendor", **instead):
    text = base64.b64encode(signature(key or KEYS[kind], METHODS[method])).decode()
    given = {
        "img_signature": text,
        "img_signature_hash_method": method,
        "img_signature_key_type": kind,
        "img_signature_certificate_uuid": name,
    }
    return {name: value for name, value in (given | instead).items() if value is not None}


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
    options = {"of_data_suffices": True} | options
    rig.agent._programmer._signatures = SignatureVerifier(keys, rig.clock, **options)


def image(rig, **given):
    return rig.image(data=DATA, region_uuid=TYPE_R1, function_uuid=AES, **given)


def refused(rig, kind, words, specs=WANTED):
    """Plugs; it must fail with this error, and nothing may be programmed or attached."""
    with pytest.raises(kind, match=words):
        rig.plug(new_instance(), specs, R1)
    assert (rig.carries(R1), rig.programs(), rig.held.attachments) == ("", [], {})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KEYS)
def test_a_bitstream_with_a_valid_signature_is_programmed(rig, keys, kind, method):
    (keys / "vendor.pem").write_bytes(pem(KEYS[kind]))
    wanted = image(rig, **properties(kind, method))
    rig.plug(new_instance(), WANTED, R1)
    assert rig.carries(R1) == wanted


def test_the_key_of_a_certificate_is_accepted_only_while_the_certificate_is_valid(rig, keys):
    now = rig.clock.now()
    key, begins, ends = KEYS["RSA-PSS"], now + timedelta(hours=1), now + timedelta(hours=2)
    (keys / "vendor.pem").write_bytes(certificate(key, begins, ends))
    image(rig, **properties(method="SHA-512"))
    refused(rig, SignatureRejected, "is not valid before")
    rig.clock.sleep(5400)
    instance = new_instance()
    rig.plug(instance, WANTED, R1)
    rig.unplug(instance)
    rig.clock.sleep(5400)
    with pytest.raises(SignatureRejected, match=r"expired at .*sign with a valid one"):
        rig.plug(new_instance(), WANTED, R1)
    assert rig.held.attachments == {}


@pytest.mark.parametrize("name", ["img_signature", "img_signature_hash_method", "img_signature_key_type",
                                  "img_signature_certificate_uuid"])  # fmt: skip
def test_an_image_with_incomplete_signature_properties_is_refused(rig, name):
    image(rig, **properties(**{name: None}))
    refused(rig, SignatureMissing, f"it has no {name}; sign its data")
    refused(rig, SignatureMissing, name, fpga(function=AES))  # even if not required


def test_an_image_without_a_signature_is_refused_only_if_one_is_required(rig, keys):
    wanted = image(rig)
    refused(rig, SignatureMissing, "is not signed")
    with_keys(rig, keys, always=True)
    refused(rig, SignatureMissing, "is not signed", fpga(function=AES))
    with_keys(rig, keys)
    rig.plug(new_instance(), fpga(function=AES), R1)
    assert rig.carries(R1) == wanted


@pytest.mark.parametrize("method", ["SHA-256", "SHA-512"])
@pytest.mark.parametrize("specs", [WANTED, fpga(function=AES)], ids=["demanded", "given"])
def test_the_signature_of_other_data_is_refused_even_if_none_is_required(rig, method, specs):
    other = base64.b64encode(signature(KEYS["RSA-PSS"], METHODS[method], DATA + b"!")).decode()
    image(rig, **properties(method=method, img_signature=other))
    refused(rig, SignatureRejected, "does not match this data and key", specs)


def test_a_signature_by_another_key_is_refused(rig):
    image(rig, **properties(key=STRANGER))
    refused(rig, SignatureRejected, "does not match this data and key")


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        ({"img_signature_certificate_uuid": "unheard"}, "not known on this host; .*put unheard.pem"),
        ({"img_signature_certificate_uuid": "../vendor"}, "letters, digits"),
        ({"img_signature_certificate_uuid": "/etc/ssl/certs/x"}, "letters, digits"),
        ({"img_signature_certificate_uuid": "junk"}, "neither a public key nor a certificate"),
        ({"img_signature_hash_method": "MD5"}, "it takes SHA-224"),
        ({"img_signature_key_type": "DSA"}, "it takes RSA-PSS"),
        ({"img_signature_key_type": "ECC_SECP384R1"}, "key vendor is an RSA key"),
        ({"img_signature_certificate_uuid": "curve"}, "a key on the curve secp256r1"),
        ({"img_signature_certificate_uuid": "edwards"}, "neither an RSA key nor an elliptic-curve key"),
        ({"img_signature_certificate_uuid": "short"}, "1024 bits"),
        ({"img_signature": "%%%"}, "not valid base64"),
        ({"img_signature": "AAAA"}, "does not match this data"),
    ],
)
def test_a_signature_that_cannot_be_verified_is_refused_with_the_reason(rig, keys, instead, words):
    (keys / "junk.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    (keys / "curve.pem").write_bytes(pem(KEYS["ECC_SECP256R1"]))
    (keys / "edwards.pem").write_bytes(pem(ed25519.Ed25519PrivateKey.generate()))
    (keys / "short.pem").write_bytes(pem(rsa.generate_private_key(65537, 1024)))
    image(rig, **properties(**instead))
    refused(rig, SignatureRejected, words)


def test_a_host_without_keys_refuses_required_signatures_and_ignores_others(rig):
    wanted = image(rig, **properties(img_signature="AAAA"))
    with_keys(rig, None)
    refused(rig, SignatureRejected, "this host has no keys")
    rig.plug(new_instance(), fpga(function=AES), R1)
    assert rig.carries(R1) == wanted


def test_a_loaded_bitstream_is_verified_when_a_signature_is_required(rig, keys):
    """The bitstream may have been loaded when no signature was required."""
    image(rig, **properties(key=STRANGER))
    with_keys(rig, None)
    rig.plug(new_instance(), fpga(function=AES), R1)
    with_keys(rig, keys)
    for _ in range(2):
        with pytest.raises(SignatureRejected, match="does not match this data"):
            rig.plug(new_instance(), WANTED, R1)
    assert [one.state for one in rig.held.handles.values()] == [HandleState.ATTACHED]


def test_a_removed_key_is_not_accepted_any_more(rig, keys):
    image(rig, **properties())
    rig.plug(new_instance(), WANTED, R1)
    (keys / "vendor.pem").unlink()
    with pytest.raises(SignatureRejected, match="not known on this host"):
        rig.plug(new_instance(), WANTED, R1)


def test_signatures_are_also_required_when_an_operator_programs_a_region(rig, keys):
    wanted = image(rig)
    with_keys(rig, keys, always=True)
    with pytest.raises(SignatureMissing):
        rig.agent.program_region(ProgramJob(deployable=R1, image_id=wanted, project_id=PROJECT))
    assert rig.carries(R1) == ""


def test_a_missing_directory_of_keys_is_a_start_error(rig, tmp_path):
    with pytest.raises(StartError, match="is not a directory"):
        SignatureVerifier(tmp_path / "nowhere", rig.clock)
    with pytest.raises(StartError, match="no directory of keys is configured"):
        SignatureVerifier(None, rig.clock, always=True)
