"""Markdown for the generated pages: their first lines, and tables."""

from collections.abc import Iterable, Sequence

NOTE = "<!-- written by tools/reference_pages.py: change its source, then run `make reference` -->\n"


def heading(title: str, words: str) -> str:
    return f"{NOTE}\n# {title}\n\n{words.strip()}\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. Cells are Markdown; bars in them are escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n" + "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""
