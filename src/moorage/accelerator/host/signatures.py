"""Verifies signatures of bitstreams with the keys in an operator's directory, and creates them for the CLI.

There are two kinds. The signature of a manifest (`model.bitstream`) covers the data, the region type, the functions
and the card together. The other kind covers only the data, as in Glance: the properties `img_signature` (base64),
`img_signature_hash_method`, `img_signature_key_type` and `img_signature_certificate_uuid`, all four or none. It does
not protect the image's other properties, which describe the bitstream. It is verified if present, but satisfies a
requirement only if the operator allows that.

A key is a file ``<directory>/<name>.pem``: a public key or an X.509 certificate. A user who can write that directory
can admit bitstreams. The files are read on each use, so the removal of a key takes effect at once.
Spec: docs/evidence/specs/accelerator-attach.md
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from moorage.accelerator.model.bitstream import (
    FUNCTION_ID,
    MANIFEST,
    MANIFEST_SIGNATURE,
    REGION,
    decode_manifest,
    manifest_mismatch,
    signed_bytes,
)
from moorage.accelerator.model.devices import Voucher
from moorage.accelerator.model.errors import SignatureMissing, SignatureRejected
from moorage.core.clock import Clock
from moorage.core.errors import Invalid, StartError
from moorage.images.base import CHUNK_BYTES, ImageRecord

SIGNATURE = "img_signature"
HASH_METHOD = "img_signature_hash_method"
KEY_TYPE = "img_signature_key_type"
CERTIFICATE = "img_signature_certificate_uuid"
PROPERTIES = (SIGNATURE, HASH_METHOD, KEY_TYPE, CERTIFICATE)

_HASHES = {"SHA-224": "sha224", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}
RSA_PSS = "RSA-PSS"
_CURVES = {"ECC_SECP256R1": "secp256r1", "ECC_SECP384R1": "secp384r1", "ECC_SECP521R1": "secp521r1"}
_MIN_RSA_BITS = 2048
_DATA_ONLY = f"""its {SIGNATURE} covers only the data, but not {REGION}, {FUNCTION_ID} or the card, which \
anybody with write access to the image can change; sign them together with `moorage bitstream sign`, or set \
[accelerator] data_signatures = suffice
"""

#: The name becomes part of a file name: no dots, no slashes.
_KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class ImageSignature:
    """A signature of an image, with a matching key from this host."""

    image: ImageRecord
    signature: bytes
    hash_method: str  #: as `hashlib` calls it
    key: Any  #: a public key of `cryptography`
    by_manifest: bool = False  #: it also covers the properties that describe the bitstream


class SignatureVerifier:
    """`keys` None: the host has no keys, so a required signature cannot be verified. `always`: every bitstream must be
    signed. `of_data_suffices`: a signature of the data alone satisfies a requirement.
    """

    def __init__(
        self, keys: Path | None, clock: Clock, *, always: bool = False, of_data_suffices: bool = False
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._always = always
        self._of_data_suffices = of_data_suffices
        if always and keys is None:
            raise StartError(
                "signatures are required for every bitstream, but no directory of keys is configured; set "
                "[accelerator] signature_keys"
            )
        if keys is not None:
            if not keys.is_dir():
                raise StartError(f"{keys}, the configured directory of signature keys, is not a directory")
            require_cryptography()
        #: Digests of verified data, by (sha512, hash method).
        self._digests: dict[tuple[str, str], bytes] = {}

    def check_image(self, image: ImageRecord, *, demanded: bool) -> ImageSignature | None:
        """Checks everything that does not need the data. Returns the signature to verify, or None. Raises
        `SignatureMissing`, `SignatureRejected`.
        """
        given = {name: image.properties[name] for name in PROPERTIES if image.properties.get(name)}
        has_manifest = bool(image.properties.get(MANIFEST) or image.properties.get(MANIFEST_SIGNATURE))
        if not given and not has_manifest and not (demanded or self._always):
            return None
        if self._keys is None:
            if not demanded:
                return None  # no signature is required
            raise SignatureRejected(
                f"a signature of image {image.id} ({image.name}) is required, but this host has no keys to verify it "
                "with; its operator can set their directory in [accelerator] signature_keys"
            )
        if has_manifest:
            return self._check_manifest(image, self._keys)
        if not given:
            raise SignatureMissing(
                f"image {image.id} ({image.name}) is not signed: it has no {MANIFEST}; sign it with `moorage bitstream "
                "sign` (docs/guides/bitstreams.md)"
            )
        if (demanded or self._always) and not self._of_data_suffices:
            raise _rejected(image, _DATA_ONLY)
        if missing := [name for name in PROPERTIES if name not in given]:
            raise SignatureMissing(
                f"image {image.id} ({image.name}) is not signed: it has no {', '.join(missing)}; sign its data and set "
                "these properties (docs/guides/bitstreams.md)"
            )
        signed = self._check_data_signature(image, given, self._keys)
        if signed.hash_method == "sha512":  # the cache verifies this digest anyway
            _verify_signature(signed, bytes.fromhex(image.hash_value or ""))
        return signed

    def voucher_of(self, signed: ImageSignature | None) -> Voucher:
        """The party that vouches for the description of an image, if the image is public. `signed` None: it has no
        signature.
        """
        if signed is not None and signed.by_manifest:
            return Voucher.SIGNATURE
        return Voucher.NOBODY if self._always else Voucher.OPERATOR

    def is_verified(self, signed: ImageSignature) -> bool:
        """Whether the signature is verified already, without reading the data. Raises `SignatureRejected`."""
        digest = self._digests.get((signed.image.hash_value or "", signed.hash_method))
        if digest is not None:
            _verify_signature(signed, digest)
        return digest is not None or signed.hash_method == "sha512"

    def verify_data(self, signed: ImageSignature, data: BinaryIO) -> None:
        """Verify `data`, which matches the image's sha512; leaves the file at its start. Raises `SignatureRejected`."""
        found = hashlib.new(signed.hash_method)
        while chunk := data.read(CHUNK_BYTES):
            found.update(chunk)
        data.seek(0)
        _verify_signature(signed, found.digest())
        self._digests[signed.image.hash_value or "", signed.hash_method] = found.digest()

    def _check_manifest(self, image: ImageRecord, directory: Path) -> ImageSignature:
        text, given = image.properties.get(MANIFEST), image.properties.get(MANIFEST_SIGNATURE)
        if not text or not given:
            missing = MANIFEST_SIGNATURE if text else MANIFEST
            raise SignatureMissing(
                f"image {image.id} ({image.name}) is not signed: it has no {missing}; set both "
                "(docs/guides/bitstreams.md)"
            )
        try:
            manifest = decode_manifest(text)
        except ValueError as error:
            raise _rejected(image, f"its {MANIFEST} cannot be read: {error}") from error
        key = self._load_key(image, _key_name(image, manifest.key, MANIFEST), directory)
        if all(_key_mismatch(key, kind) for kind in (RSA_PSS, *_CURVES)):
            raise _rejected(image, f"key {manifest.key} is {_key_mismatch(key, RSA_PSS)}")
        signed = ImageSignature(
            image, _decode_base64(image, given, MANIFEST_SIGNATURE), "sha512", key, by_manifest=True
        )
        _verify_signature(signed, hashlib.sha512(signed_bytes(text)).digest(), "manifest")
        if why := manifest_mismatch(manifest, image.hash_value or "", image.properties):
            raise _rejected(image, f"{why}; upload the data and properties that were signed, or sign the image again")
        return signed

    def _check_data_signature(self, image: ImageRecord, given: Mapping[str, str], directory: Path) -> ImageSignature:
        method, kind = given[HASH_METHOD].strip().upper(), given[KEY_TYPE].strip().upper()
        if method not in _HASHES:
            raise _rejected(image, f"{HASH_METHOD} is {method!r}; it takes {', '.join(_HASHES)}")
        if kind != RSA_PSS and kind not in _CURVES:
            raise _rejected(image, f"{KEY_TYPE} is {kind!r}; it takes {RSA_PSS}, {', '.join(_CURVES)}")
        signature = _decode_base64(image, given[SIGNATURE], SIGNATURE)
        name = _key_name(image, given[CERTIFICATE].strip(), CERTIFICATE)
        key = self._load_key(image, name, directory)
        if why := _key_mismatch(key, kind):
            raise _rejected(image, f"key {name} is {why}, but {KEY_TYPE} is {kind}; correct the property or sign again")
        return ImageSignature(image, signature, _HASHES[method], key)

    def _load_key(self, image: ImageRecord, name: str, directory: Path) -> object:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            pem = (directory / f"{name}.pem").read_bytes()
        except OSError as error:
            raise _rejected(
                image,
                f"key {name} is not known on this host; sign with a known key, or have its operator put {name}.pem "
                "into the directory of [accelerator] signature_keys",
            ) from error
        try:
            if b"BEGIN CERTIFICATE" not in pem:
                return load_pem_public_key(pem)
            certificate = x509.load_pem_x509_certificate(pem)
        except ValueError as error:
            raise _rejected(image, f"{name}.pem on this host is neither a public key nor a certificate") from error
        now = self._clock.now()
        if now < certificate.not_valid_before_utc:
            raise _rejected(image, f"certificate {name} is not valid before {certificate.not_valid_before_utc}")
        if now > certificate.not_valid_after_utc:
            raise _rejected(
                image, f"certificate {name} expired at {certificate.not_valid_after_utc}; sign with a valid one"
            )
        return certificate.public_key()


def sign_manifest(text: str, key: object) -> str:
    """Sign the manifest `text` with a private key of `cryptography`; returns the value of `MANIFEST_SIGNATURE`. Raises
    `Invalid`.
    """
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise Invalid("the key is neither an RSA key nor an elliptic-curve key")
    if all(_key_mismatch(key.public_key(), kind) for kind in (RSA_PSS, *_CURVES)):
        raise Invalid(
            f"the key is {_key_mismatch(key.public_key(), RSA_PSS)}; the supported kinds are {RSA_PSS}, "
            f"{', '.join(_CURVES)}"
        )
    method, message = hashes.SHA512(), signed_bytes(text)
    if isinstance(key, rsa.RSAPrivateKey):
        pss = padding.PSS(mgf=padding.MGF1(method), salt_length=padding.PSS.DIGEST_LENGTH)
        made = key.sign(message, pss, method)
    else:
        made = key.sign(message, ec.ECDSA(method))
    return base64.b64encode(made).decode()


def is_key_name(text: str) -> bool:
    return _KEY_NAME.match(text) is not None


def _decode_base64(image: ImageRecord, text: str, name: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError as error:
        raise _rejected(image, f"{name} is not valid base64") from error


def _key_name(image: ImageRecord, name: str, where: str) -> str:
    if not is_key_name(name):
        raise _rejected(image, f"{where} is {name[:80]!r}; the name of a key may only have letters, digits, - and _")
    return name


def _key_mismatch(key: object, kind: str) -> str:
    """A description of a key that is not of `kind`; empty if it is."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < _MIN_RSA_BITS:
            return f"an RSA key of {key.key_size} bits, where at least {_MIN_RSA_BITS} are required"
        return "" if kind == RSA_PSS else "an RSA key"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return "" if key.curve.name == _CURVES.get(kind) else f"a key on the curve {key.curve.name}"
    return "neither an RSA key nor an elliptic-curve key"


def _verify_signature(signed: ImageSignature, digest: bytes, what: str = "data") -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

    kinds: dict[str, Any] = {
        "sha224": hashes.SHA224,
        "sha256": hashes.SHA256,
        "sha384": hashes.SHA384,
        "sha512": hashes.SHA512,
    }
    method = kinds[signed.hash_method]()
    try:
        if isinstance(signed.key, rsa.RSAPublicKey):
            pss = padding.PSS(mgf=padding.MGF1(method), salt_length=padding.PSS.AUTO)
            signed.key.verify(signed.signature, digest, pss, Prehashed(method))
        else:
            signed.key.verify(signed.signature, digest, ec.ECDSA(Prehashed(method)))
    except InvalidSignature as error:
        raise _rejected(
            signed.image,
            f"the signature does not match this {what} and key: upload the data that was signed, or sign it again",
        ) from error


def _rejected(image: ImageRecord, why: str) -> SignatureRejected:
    return SignatureRejected(f"image {image.id} ({image.name}) is not programmed: {why}")


def require_cryptography() -> None:
    """Raises `StartError`."""
    if find_spec("cryptography") is None:
        raise StartError("signatures of bitstreams need the package cryptography: pip install moorage[signatures]")
