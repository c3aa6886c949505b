"""Use cases of key pairs. Only public keys are stored; users keep the private keys."""

import base64
import binascii
import hashlib
from dataclasses import dataclass

from sqlalchemy import Connection

from moorage.compute.catalogue.key_generation import generate_keys
from moorage.compute.deps import ComputeDeps
from moorage.compute.model.servers import Keypair
from moorage.compute.requests.quota_service import QuotaService
from moorage.compute.store import keypair_store
from moorage.core.errors import Invalid, NotFound, OverQuota
from moorage.db.session import in_transaction, read

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
