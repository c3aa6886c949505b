"""Generates key pairs as Nova does below microversion 2.92: the private key is in the answer and is kept nowhere.

* ssh: RSA with 2,048 bits; the private key in PEM (``BEGIN RSA PRIVATE KEY``).
* x509: a certificate of the user, signed by itself, for WinRM logins to Windows guests; the private key and the
  certificate as PKCS #12 with an empty password, in base64.

Randomness is not an argument here, unlike elsewhere: a test's predictable keys must not be possible in a service.
Needs the package `cryptography`. Source: Compute API reference, "Create Or Import Keypair"; the formats are Nova 34's.
"""

import base64
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from moorage.core.errors import Invalid, NotBuilt

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

_BITS = 2048
_VALID = timedelta(days=3650)
#: Microsoft's user principal name, which Windows compares with the name of the login.
_USER_PRINCIPAL_NAME = "1.3.6.1.4.1.311.20.2.3"
_DER_UTF8_STRING = 0x0C
#: X.509's bound of a common name.
_MAX_COMMON_NAME = 64


@dataclass(frozen=True, slots=True)
class GeneratedKeys:
    public_key: str  #: as a user would import it
    private_key: str = field(repr=False)


def generate_keys(kind: str, user_id: str, now: datetime) -> GeneratedKeys:
    """`kind`: ``ssh`` or ``x509``. Raises `NotBuilt` without `cryptography`."""
    try:
        from cryptography.hazmat.primitives.asymmetric import rsa
    except ImportError as error:
        raise NotBuilt(
            "This service does not generate key pairs, because its package cryptography is not installed: create a key "
            "pair with ssh-keygen and send its public_key, or ask the operator to install moorage[signatures]."
        ) from error
    key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    return _certificate(key, user_id, now) if kind == "x509" else _ssh(key)


def _ssh(key: "RSAPrivateKey") -> GeneratedKeys:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return GeneratedKeys(f"{public.decode()} Generated-by-Nova", private.decode())


def _certificate(key: "RSAPrivateKey", user_id: str, now: datetime) -> GeneratedKeys:
    """Raises `Invalid` for a user id that cannot be a common name."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, pkcs12
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    if not 0 < len(user_id) <= _MAX_COMMON_NAME:
        raise Invalid(f"A certificate names its user with 1 to {_MAX_COMMON_NAME} characters, not {len(user_id)}.")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user_id)])
    principal = x509.OtherName(x509.ObjectIdentifier(_USER_PRINCIPAL_NAME), _utf8_string(f"{user_id}@localhost"))
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + _VALID)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([principal]), critical=False)
        .sign(key, SHA256())
    )
    both = pkcs12.serialize_key_and_certificates(None, key, certificate, None, NoEncryption())
    return GeneratedKeys(certificate.public_bytes(Encoding.PEM).decode(), base64.b64encode(both).decode())


def _utf8_string(text: str) -> bytes:
    """In DER."""
    content = text.encode()
    size = len(content)
    length = bytes([size]) if size < 0x80 else bytes([0x80 | (size.bit_length() + 7) // 8])
    if size >= 0x80:
        length += size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([_DER_UTF8_STRING]) + length + content
