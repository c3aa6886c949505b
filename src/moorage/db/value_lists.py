"""A column has one of many values: one parameter where the database takes a list as one."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, any_, bindparam
from sqlalchemy.dialects.postgresql import ARRAY

from moorage.db.engine import dialect_name


def among(connection: Connection, column: Column[Any], values: Collection[Any]) -> ColumnElement[bool]:
    """For lists whose length is a matter of how much there is to do.

    On PostgreSQL the words are the same for any length: they are made, sent and planned once. With a place for each
    value that takes longer than finding the rows.
    """
    if dialect_name(connection) == "postgresql":
        return column == any_(bindparam(None, list(values), ARRAY(column.type)))
    return column.in_(values)
