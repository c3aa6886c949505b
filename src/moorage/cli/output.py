"""What commands print: tables and sentences within 100 columns, without colour where NO_COLOR is set or nobody looks."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

#: Of every command that shows something.
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")

#: Columns, at most; what is printed into a file or a pipe is as wide as this.
WIDTH = 100


def console() -> Console:
    """For standard output. A terminal may be narrower, and is never used beyond `WIDTH`."""
    width = min(os.get_terminal_size().columns, WIDTH) if sys.stdout.isatty() else WIDTH
    plain = bool(os.environ.get("NO_COLOR"))
    return _Printable(width=width, highlight=False, emoji=False, markup=False, color_system=None if plain else "auto")


class _Printable(Console):
    """Every string that is printed, and every cell of a table, is made into text here: names that tenants chose are in it."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str("\n".join(printable(line) for line in text.split("\n")), **options)


def printable(text: str) -> str:
    """A line in which names that somebody chose do not steer the terminal: control characters and overrides of the
    direction of text are written as their numbers.
    """
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def table(*headings: str, right: Sequence[str] = (), whole: Sequence[str] = ()) -> Table:
    """Rows below `headings`. The columns in `right` are numbers; those in `whole` are to be copied: not broken."""
    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in right else "left"
        made.add_column(heading, justify=justify, overflow="fold", no_wrap=heading in whole)
    return made


@contextmanager
def progress(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error while somebody looks: call it with the present step, how much is done and of how much."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with bar:
        task = bar.add_task(what, total=None)

        def show(step: str, done: int, total: int) -> None:
            bar.update(task, description=f"{what}: {step}", completed=done, total=total)

        yield show
