"""Use cases of key pairs. Only public keys are stored; users keep the private keys.

Below microversion 2.92, `generate_keys` generates key pairs as Nova does: the private key is in the answer and is kept
nowhere.

* ssh: RSA with 2,048 bits; the private key in PEM (``BEGIN RSA PRIVATE KEY``).
* x509: a certificate of the user, signed by itself, for WinRM logins to Windows guests; the private key and the
  certificate as PKCS #12 with an empty password, in base64.

Randomness is not an argument here, unlike elsewhere: a test's predictable keys must not be possible in a service.
Needs the package `cryptography`. Source: Compute API reference, "Create Or Import Keypair"; the formats are Nova 34's.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model.servers import Keypair
from moorage.compute.requests.quota_service import QuotaService
from moorage.compute.store import keypair_store
from moorage.core.errors import Invalid, NotBuilt, NotFound, OverQuota
from moorage.db.session import in_transaction, read

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


_PEM_BEGIN, _PEM_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True)
class KeypairService:
    deps: ComputeDeps
    quotas: QuotaService

    def keypairs_of_user(self, user_id: str) -> list[Keypair]:
        with read(self.deps.engine) as connection:
            return keypair_store.keypairs_of(connection, user_id)

    def get_keypair(self, user_id: str, name: str) -> Keypair:
        with read(self.deps.engine) as connection:
            pair = keypair_store.keypair(connection, user_id, name)
        if pair is None:
            raise NotFound(f"Keypair {name} not found for user {user_id}")
        return pair

    def add_keypair(self, project_id: str, user_id: str, name: str, kind: str, public_key: str) -> Keypair:
        """`kind`: ``ssh`` or ``x509``.

        As in Nova, the limit is that of the caller's project and applies to each user.
        """
        fingerprint = x509_fingerprint(public_key) if kind == "x509" else ssh_fingerprint(public_key)
        pair = Keypair(user_id, name, kind, public_key, fingerprint, self.deps.clock.now())

        def insert_pair(connection: Connection) -> None:
            self._check_limit(connection, project_id, user_id)
            keypair_store.insert_keypair(connection, pair)

        in_transaction(self.deps.engine, insert_pair)
        return pair

    def generate_keypair(self, project_id: str, user_id: str, name: str, kind: str) -> tuple[Keypair, str]:
        """Returns (the key pair, its private key). The private key is not stored.

        The limit and the name are checked before the keys are generated, too, which takes a tenth of a second of CPU.
        """

        def check(connection: Connection) -> None:
            self._check_limit(connection, project_id, user_id)
            if keypair_store.keypair(connection, user_id, name) is not None:
                raise keypair_store.exists_already(name)

        in_transaction(self.deps.engine, check)
        keys = generate_keys(kind, user_id, self.deps.clock.now())
        return self.add_keypair(project_id, user_id, name, kind, keys.public_key), keys.private_key

    def _check_limit(self, connection: Connection, project_id: str, user_id: str) -> None:
        limit = self.quotas.lock_limits(connection, project_id)["key_pairs"]
        if 0 <= limit <= keypair_store.count(connection, user_id):
            raise OverQuota("Quota exceeded, too many key pairs.")

    def delete_keypair(self, user_id: str, name: str) -> None:
        def delete_pair(connection: Connection) -> None:
            if not keypair_store.delete_keypair(connection, user_id, name):
                raise NotFound(f"Keypair {name} not found for user {user_id}")

        in_transaction(self.deps.engine, delete_pair)


def ssh_fingerprint(public_key: str) -> str:
    """MD5 of the key in pairs of hex digits, the old format of OpenSSH that the API still shows."""
    try:
        kind, encoded = public_key.split()[:2]
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid("Keypair data is invalid: failed to generate fingerprint") from error
    # The key begins with the length of its kind in four bytes, then the kind.
    if not key.startswith(len(kind).to_bytes(4) + kind.encode()):
        raise Invalid("Keypair data is invalid: failed to generate fingerprint")
    return _in_pairs(hashlib.md5(key, usedforsecurity=False).hexdigest())


def x509_fingerprint(certificate: str) -> str:
    """SHA-1 of the certificate (DER) in a PEM text, in pairs of hex digits."""
    begin, _, rest = certificate.partition(_PEM_BEGIN)
    body, end, _ = rest.partition(_PEM_END)
    try:
        der = base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid("Keypair data is invalid: failed to generate X509 fingerprint") from error
    if begin.strip() or not end or not der.startswith(b"\x30"):
        raise Invalid("Keypair data is invalid: failed to generate X509 fingerprint")
    return _in_pairs(hashlib.sha1(der, usedforsecurity=False).hexdigest())


def _in_pairs(digits: str) -> str:
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))
