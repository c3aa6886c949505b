"""Tables that the viewer sorts and filters, by the page's address: without scripts, and a link shows the same. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")

#: Characters of a filter that count, as many as its field takes.
MAX_WANTED = 200


@dataclass(frozen=True, slots=True)
class TableColumn(Generic[R]):
    """`text`: what the column shows of a row, by which it is sorted and found."""

    key: str
    words: str
    text: Callable[[R], str]


@dataclass(frozen=True, slots=True)
class Heading:
    """A column's heading. `query` sorts by the column, or the other way round if it is the order already."""

    words: str
    query: str
    order: str  #: the value of ``aria-sort``


@dataclass(frozen=True, slots=True)
class TableOrder:
    key: str
    descending: bool


def parse_order(text: str | None, columns: Sequence[TableColumn[R]]) -> TableOrder:
    """``host`` or ``-host``; the first column if it is missing or unknown."""
    return chosen_order(text, columns) or TableOrder(columns[0].key, descending=False)


def chosen_order(text: str | None, columns: Sequence[TableColumn[R]]) -> TableOrder | None:
    """Like `parse_order`, for rows that have an order of their own: None if `text` is missing or unknown."""
    key = (text or "").removeprefix("-")
    if key not in {column.key for column in columns}:
        return None
    return TableOrder(key, descending=(text or "").startswith("-"))


def table_rows(
    rows: Iterable[R], columns: Sequence[TableColumn[R]], order: TableOrder | None, wanted: str = ""
) -> list[R]:
    """The rows in which each word of `wanted` is found in some column, sorted by `order`; None: not sorted.

    Rows without a text in the column of the order are always last.
    """
    words = wanted[:MAX_WANTED].casefold().split()
    found = [row for row in rows if _has_all(words, [column.text(row).casefold() for column in columns])]
    if order is None:
        return found
    by = next(column for column in columns if column.key == order.key)
    ordered = sorted(found, key=lambda row: natural_key(by.text(row)), reverse=order.descending)
    return sorted(ordered, key=lambda row: not by.text(row))


def headings(
    columns: Sequence[TableColumn[R]],
    order: TableOrder | None,
    kept: Mapping[str, str],
    encode: Callable[[Mapping[str, str]], str],
) -> list[Heading]:
    """`kept`: the other parameters of the page's address. `encode`: makes a query of parameters."""
    found = []
    for column in columns:
        key, direction = column.key, "none"
        if order is not None and order.key == column.key:
            key = column.key if order.descending else f"-{column.key}"
            direction = "descending" if order.descending else "ascending"
        found.append(Heading(column.words, encode({**kept, "sort": key}), direction))
    return found


def _has_all(words: Sequence[str], texts: Sequence[str]) -> bool:
    return all(any(word in text for text in texts) for word in words)


def natural_key(text: str) -> list[tuple[bool, int, str]]:
    """Sorts compute-2 before compute-10. Numbers are compared as texts of their length, so they may be of any size."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text.casefold())
    return [
        (False, len(digits := part.lstrip("0")), digits) if part.isdecimal() and part.isascii() else (True, 0, part)
        for part in parts
    ]
