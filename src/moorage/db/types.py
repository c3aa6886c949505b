"""Column types and table options that mean the same on SQLite, PostgreSQL and MariaDB."""

from datetime import UTC, datetime
from typing import Any

import orjson
from sqlalchemy import DateTime, Dialect, MetaData, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeDecorator, TypeEngine

#: Constraint names are part of the schema: migrations of three databases must be able to name them.
NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}

#: Passed to every Table: MariaDB would otherwise compare names without regard to case. SQLAlchemy takes the options
#: of the dialect's own name only, and that is `mysql` or `mariadb`, as the URL says.
TABLE_OPTIONS: dict[str, Any] = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}


def new_metadata() -> MetaData:
    return MetaData(naming_convention=NAMING_CONVENTION)


class Uuid(String):
    """Canonical text, 36 characters: readable in every database and on every wire."""

    def __init__(self) -> None:
        super().__init__(36)


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC outside, naive UTC with microseconds inside. A naive value is a programming error."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone; times are aware UTC everywhere")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class Json(TypeDecorator[Any]):
    """A JSON document as text (MEDIUMTEXT on MariaDB): read and written whole, never queried inside."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.MEDIUMTEXT())
        return dialect.type_descriptor(Text())

    def process_bind_param(self, value: object, dialect: Dialect) -> str | None:
        return None if value is None else orjson.dumps(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> object:
        return None if value is None else orjson.loads(value)
