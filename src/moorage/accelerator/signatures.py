"""Detached signatures of bitstreams, verified against the keys in an operator's directory.

The metadata is what Glance's users know: `img_signature` (base64), `img_signature_hash_method`,
`img_signature_key_type` and `img_signature_certificate_uuid`, all four or none. The last names a file
``<directory>/<name>.pem``: a public key or an X.509 certificate. Who may write into that directory decides whose
bitstreams run; its files are read each time, so a key that was taken away counts at once.
Spec: docs/specs/accelerator-attach.md
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from moorage.accelerator.errors import SignatureMissing, SignatureRejected
from moorage.core.clock import Clock
from moorage.core.errors import StartError
from moorage.images.base import CHUNK_BYTES, ImageRecord

SIGNATURE = "img_signature"
HASH_METHOD = "img_signature_hash_method"
KEY_TYPE = "img_signature_key_type"
CERTIFICATE = "img_signature_certificate_uuid"
PROPERTIES = (SIGNATURE, HASH_METHOD, KEY_TYPE, CERTIFICATE)

_HASHES = {"SHA-224": "sha224", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}
RSA_PSS = "RSA-PSS"
_CURVES = {"ECC_SECP256R1": "secp256r1", "ECC_SECP384R1": "secp384r1", "ECC_SECP521R1": "secp521r1"}
_LEAST_RSA_BITS = 2048
#: Becomes a file's name: no dots, no slashes.
_KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Signed:
    """What an image says of its signature, its key found and fit for it."""

    image: ImageRecord
    signature: bytes
    hash_method: str  #: as `hashlib` calls it
    key: Any  #: a public key of `cryptography`


class Signatures:
    """`keys` None: there are none, and a signature that is demanded cannot be verified. `always`: each is demanded."""

    def __init__(self, keys: Path | None, clock: Clock, *, always: bool = False) -> None:
        self._keys = keys
        self._clock = clock
        self._always = always
        if always and keys is None:
            raise StartError("signatures are demanded of every bitstream, but no directory of keys is named")
        if keys is not None:
            if not keys.is_dir():
                raise StartError(f"{keys}, where the keys of bitstreams' signatures are to be, is no directory")
            _cryptography()
        #: By sha512 and method, what the data hashes to.
        self._hashed: dict[tuple[str, str], bytes] = {}

    def check(self, image: ImageRecord, *, demanded: bool) -> Signed | None:
        """Everything that needs no data; None where nothing is to be verified. `SignatureMissing`, `SignatureRejected`."""
        given = {name: image.properties[name] for name in PROPERTIES if image.properties.get(name)}
        if not given and not (demanded or self._always):
            return None
        if self._keys is None:
            if not demanded:
                return None  # nobody has asked
            raise SignatureRejected(
                f"a signature of image {image.id} ({image.name}) is demanded, and this host has no keys to verify it "
                "with; its operator names their directory in [accelerator] signature_keys"
            )
        if missing := [name for name in PROPERTIES if name not in given]:
            raise SignatureMissing(
                f"image {image.id} ({image.name}) is not signed: it has no {', '.join(missing)}; sign its data and set "
                "these properties (docs/guides/bitstreams.md)"
            )
        signed = self._signed(image, given, self._keys)
        if signed.hash_method == "sha512":  # the digest that the data is held against anyway
            _verify(signed, bytes.fromhex(image.hash_value or ""))
        return signed

    def is_verified(self, signed: Signed) -> bool:
        """Whether no data is needed (any more). Raises `SignatureRejected`."""
        digest = self._hashed.get((signed.image.hash_value or "", signed.hash_method))
        if digest is not None:
            _verify(signed, digest)
        return digest is not None or signed.hash_method == "sha512"

    def verify(self, signed: Signed, data: BinaryIO) -> None:
        """`data` is what the image's sha512 promises; it is read and left at its start. Raises `SignatureRejected`."""
        found = hashlib.new(signed.hash_method)
        while chunk := data.read(CHUNK_BYTES):
            found.update(chunk)
        data.seek(0)
        _verify(signed, found.digest())
        self._hashed[signed.image.hash_value or "", signed.hash_method] = found.digest()

    def _signed(self, image: ImageRecord, given: Mapping[str, str], directory: Path) -> Signed:
        method, kind = given[HASH_METHOD].strip().upper(), given[KEY_TYPE].strip().upper()
        if method not in _HASHES:
            raise _rejected(image, f"{HASH_METHOD} is {method!r}; it takes {', '.join(_HASHES)}")
        if kind != RSA_PSS and kind not in _CURVES:
            raise _rejected(image, f"{KEY_TYPE} is {kind!r}; it takes {RSA_PSS}, {', '.join(_CURVES)}")
        try:
            signature = base64.b64decode("".join(given[SIGNATURE].split()), validate=True)
        except ValueError as error:
            raise _rejected(image, f"{SIGNATURE} is no base64") from error
        name = given[CERTIFICATE].strip()
        if not _KEY_NAME.match(name):
            raise _rejected(image, f"{CERTIFICATE} is {name[:80]!r}; a key's name has letters, digits, - and _ only")
        key = self._key(image, name, directory)
        if why := _unfit(key, kind):
            raise _rejected(image, f"key {name} is {why}, {KEY_TYPE} says {kind}; correct the property or sign again")
        return Signed(image, signature, _HASHES[method], key)

    def _key(self, image: ImageRecord, name: str, directory: Path) -> Any:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            pem = (directory / f"{name}.pem").read_bytes()
        except OSError as error:
            raise _rejected(
                image,
                f"key {name} is not known on this host; sign with one that is, or have its operator put {name}.pem "
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
            raise _rejected(image, f"certificate {name} is valid from {certificate.not_valid_before_utc} on")
        if now > certificate.not_valid_after_utc:
            raise _rejected(
                image, f"certificate {name} expired at {certificate.not_valid_after_utc}; sign with one that is valid"
            )
        return certificate.public_key()


def _unfit(key: Any, kind: str) -> str:
    """What it is instead of a key of `kind`; empty where it is one."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < _LEAST_RSA_BITS:
            return f"an RSA key of {key.key_size} bits, of which {_LEAST_RSA_BITS} are the least"
        return "" if kind == RSA_PSS else "an RSA key"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return "" if key.curve.name == _CURVES.get(kind) else f"a key on the curve {key.curve.name}"
    return "neither an RSA key nor one on a curve"


def _verify(signed: Signed, digest: bytes) -> None:
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
            signed.image, "the signature is not one of this data by that key: upload what was signed, or sign it again"
        ) from error


def _rejected(image: ImageRecord, why: str) -> SignatureRejected:
    return SignatureRejected(f"image {image.id} ({image.name}) is not programmed: {why}")


def _cryptography() -> None:
    if find_spec("cryptography") is None:
        raise StartError("[accelerator] signature_keys needs the package cryptography: pip install moorage[signatures]")
