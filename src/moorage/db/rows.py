"""What a statement says of the rows it wrote."""

from typing import Any

from sqlalchemy import CursorResult


def inserted_id(result: CursorResult[Any]) -> int:
    """The number that the database gave to the one row that was inserted."""
    if result.inserted_primary_key is None:
        raise ValueError("the database gave no id")
    return int(result.inserted_primary_key[0])
