"""Column types and table options that behave the same on SQLite, PostgreSQL and MariaDB."""

from datetime import UTC, datetime
from typing import Any, TypeAlias

import orjson
from sqlalchemy import DateTime, Dialect, MetaData, Row, Select, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeDecorator, TypeEngine

#: A row of a result, and a SELECT, whose columns are not typed: values by position are `object`. (Values by column name
#: have no type in SQLAlchemy.)
ResultRow: TypeAlias = Row[*tuple[object, ...]]
RowSelect: TypeAlias = Select[*tuple[object, ...]]

#: Names of constraints, which migrations on all three databases must be able to refer to.
NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}

#: Pass these to every Table: otherwise MariaDB would compare names case-insensitively. SQLAlchemy reads only the
#: options of the dialect in the URL, which is `mysql` or `mariadb`.
TABLE_OPTIONS: dict[str, Any] = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}


def new_metadata() -> MetaData:
    return MetaData(naming_convention=NAMING_CONVENTION)


class Uuid(String):
    """A UUID as canonical text of 36 characters."""

    def __init__(self) -> None:
        super().__init__(36)


class UtcDateTime(TypeDecorator[datetime]):
    """Timezone-aware UTC in Python, naive UTC with microseconds in the database. A naive Python value is a bug."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime]:
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone; times must be aware UTC")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class Json(TypeDecorator[object]):
    """A JSON document stored as text (MEDIUMTEXT on MariaDB). It is read and written as a whole."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.MEDIUMTEXT())
        return dialect.type_descriptor(Text())

    def process_bind_param(self, value: object, dialect: Dialect) -> str | None:
        return None if value is None else orjson.dumps(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> object:
        return None if value is None else orjson.loads(value)
