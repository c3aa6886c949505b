"""Output of commands: tables and text within 100 columns. No colour if NO_COLOR is set or there is no terminal."""

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

#: The option of every command that shows something.
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")

#: Maximum width in columns; also the width for files and pipes.
WIDTH = 100


def console() -> Console:
    """The console for standard output: as wide as the terminal, but at most `WIDTH`."""
    width = min(os.get_terminal_size().columns, WIDTH) if sys.stdout.isatty() else WIDTH
    plain = bool(os.environ.get("NO_COLOR"))
    return _Printable(width=width, highlight=False, emoji=False, markup=False, color_system=None if plain else "auto")


class _Printable(Console):
    """Makes every printed string and table cell safe, since they can contain names chosen by tenants."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str("\n".join(printable(line) for line in text.split("\n")), **options)


def printable(text: str) -> str:
    """The line without characters that could control the terminal: control characters and direction overrides are
    replaced by their code points.
    """
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def table(*headings: str, right: Sequence[str] = (), whole: Sequence[str] = ()) -> Table:
    """An empty table. Columns in `right` are right-aligned numbers; columns in `whole` are never wrapped."""
    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in right else "left"
        made.add_column(heading, justify=justify, overflow="fold", no_wrap=heading in whole)
    return made


@contextmanager
def progress(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on standard error, if it is a terminal: call the result with (step, done, total)."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with bar:
        task = bar.add_task(what, total=None)

        def show(step: str, done: int, total: int) -> None:
            bar.update(task, description=f"{what}: {step}", completed=done, total=total)

        yield show


@contextmanager
def progress_or_lines(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """As `progress`, but without a terminal each step is a line on standard error."""
    if sys.stderr.isatty():
        with progress(what) as show:
            yield show
        return
    yield lambda step, done, total: click.echo(f"{what}: preparing {step} ({done} of {total} done)", err=True)
