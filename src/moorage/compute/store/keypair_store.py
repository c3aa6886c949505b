"""Key pairs in SQL: public keys by user and name."""

from dataclasses import asdict

from sqlalchemy import Connection, bindparam, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from moorage.compute.model.servers import Keypair
from moorage.compute.store.tables import keypairs
from moorage.core.errors import Conflict, Invalid

_OF_USER = select(keypairs).where(keypairs.c.user_id == bindparam("of_user")).order_by(keypairs.c.name)
_ONE = _OF_USER.where(keypairs.c.name == bindparam("of_name"))
_COUNT = select(func.count()).select_from(keypairs).where(keypairs.c.user_id == bindparam("of_user"))
_INSERT = insert(keypairs)
_DELETE = delete(keypairs).where(keypairs.c.user_id == bindparam("of_user"), keypairs.c.name == bindparam("of_name"))


def keypairs_of(connection: Connection, user_id: str) -> list[Keypair]:
    """The key pairs of the user, sorted by name."""
    return [Keypair(**row._mapping) for row in connection.execute(_OF_USER, {"of_user": user_id})]


def keypair(connection: Connection, user_id: str, name: str) -> Keypair | None:
    row = connection.execute(_ONE, {"of_user": user_id, "of_name": name}).one_or_none()
    return None if row is None else Keypair(**row._mapping)


def public_key(connection: Connection, user_id: str, name: str | None) -> str | None:
    """The public key for a server that the user creates or rebuilds with the key pair `name`; None without a name.

    Raises `Invalid` if the user has no such key pair.
    """
    if name is None:
        return None
    pair = keypair(connection, user_id, name)
    if pair is None:
        raise Invalid("Invalid key_name provided.")
    return pair.public_key


def count(connection: Connection, user_id: str) -> int:
    return int(connection.execute(_COUNT, {"of_user": user_id}).scalar_one())


def insert_keypair(connection: Connection, pair: Keypair) -> None:
    """Raises `Conflict` for a name that the user already has."""
    try:
        connection.execute(_INSERT, asdict(pair))
    except IntegrityError as error:
        raise exists_already(pair.name) from error


def exists_already(name: str) -> Conflict:
    return Conflict(f"Key pair '{name}' already exists.")


def delete_keypair(connection: Connection, user_id: str, name: str) -> bool:
    return connection.execute(_DELETE, {"of_user": user_id, "of_name": name}).rowcount > 0
