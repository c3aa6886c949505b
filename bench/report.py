"""Formats the table, for terminals and for docs/evidence/bench."""

import os
import platform
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from bench.floors import HEADLINES, OTHER_HEADLINES, Floor, Unit
from bench.results import Row, Side, median, spread

_WIDTHS = (46, 7, 9, 9, 8, 9, 9, 8, 8, 8)
_HEADS = ("", "hosts", "p50 up", "ours", "times", "CPU up", "ours", "times", "floor", "")


def head() -> str:
    return f"\n{_cells(_HEADS)}\n{_cells(('', '', 'ms', 'ms', '', 'ms', 'ms', '', '', ''))}"


def line(row: Row) -> str:
    """One row for a terminal."""
    cells = _row_cells(row)
    return _cells((row.name, f"{row.hosts:,}", *cells))


def _row_cells(row: Row) -> tuple[str, ...]:
    verdict = row.verdict().replace("missed", "MISSED")
    if row.memory_mib:
        theirs, own = row.memory_mib
        times = f"{theirs / own:.1f}x" if own else "-"
        return (f"{theirs:.0f}", f"{own:.0f}", times, "MiB", "", "", _floor(row.floor), verdict)
    return (
        _time(row.upstream), _number(median(row.ours.p50_ms)), _times(row.ratio("p50_ms")),
        _number(median(row.upstream.cpu_ms)), _number(median(row.ours.cpu_ms)), _times(row.ratio("cpu_ms")),
        _floor(row.floor), verdict,
    )  # fmt: skip


def _cells(texts: Sequence[str]) -> str:
    first, *others = zip(texts, _WIDTHS, strict=True)
    return f"{first[0][: first[1]]:<{first[1]}}" + "".join(f" {text:>{width}}" for text, width in others)


def _time(side: Side) -> str:
    if side.p50_ms:
        return _number(median(side.p50_ms))
    return side.note if side.note.startswith(">") else "-"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}x" if value >= 20 else f"{value:.1f}x"


def _floor(floor: Floor | None) -> str:
    return "-" if floor is None else str(floor)


def headlines(rows: Sequence[Row]) -> list[str]:
    """The floors of issue 17 in its order, for a terminal: the figures of each headline's rows beside its floor."""
    lines = ["", "Floors of issue 17, by CPU per request on PostgreSQL:"]
    for one in HEADLINES:
        of_headline = [
            row for row in rows if (row.profile, row.hosts) == (one.profile, one.hosts) and row.name in one.rows
        ]
        figures, verdict = "not measured in this run", ""
        if measured := [row for row in of_headline if row.verdict()]:
            figures = ", ".join(_headline_figure(row) for row in measured)
            verdict = "MISSED" if any(row.verdict() == "missed" for row in measured) else "reached"
        lines.append(f"  {f'{one.name}, {one.hosts:,} hosts':44} {one.floor!s:>10}  {verdict:8} {figures}")
    lines += [f"  {one.name:44} {one.floor}: make bench ARGS={one.command}" for one in OTHER_HEADLINES]
    return lines


def _headline_figure(row: Row) -> str:
    is_factor = row.floor is not None and row.floor.unit is Unit.TIMES
    return _times(row.ratio("cpu_ms")) if is_factor else f"{_number(median(row.ours.p50_ms))} ms"


# ------------------------------------------------------------------------------------------------- markdown


def markdown(rows: Sequence[Row], facts: dict[str, str], remarks: Sequence[str]) -> str:
    parts = [f"* {name}: {value}" for name, value in facts.items()]
    parts += [
        "",
        (
            "| measure | hosts | clients | p50 ms: upstream | ours | times (worst..best round) | CPU ms: upstream | ours "
            "(of it database) | times | ours per second | p99 ms | floor | |"
        ),
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    parts += [_markdown_row(row) for row in rows]
    noise = [value for row in rows for side in (row.upstream, row.ours) if (value := spread(side.p50_ms)) is not None]
    cpu_noise = [
        value for row in rows for side in (row.upstream, row.ours) if (value := spread(side.cpu_ms)) is not None
    ]
    if noise:
        parts += [
            "",
            (
                f"Noise: between the rounds of a row p50 differs by ±{statistics.median(noise):.0%} (median of the rows; worst "
                f"±{max(noise):.0%}), CPU per request by ±{statistics.median(cpu_noise):.0%} (worst ±{max(cpu_noise):.0%})."
            ),
        ]
    if remarks:
        parts += ["", "Remarks of the run:", "", *(f"* {one}" for one in remarks)]
    return "\n".join(parts) + "\n"


def _markdown_row(row: Row) -> str:
    start = f"| {row.name} | {row.hosts:,} | {row.clients or ''} |"
    floor, verdict = _floor(row.floor), row.verdict().replace("missed", "**missed**")
    if row.memory_mib:
        theirs, own = row.memory_mib
        notes = f"{theirs:.0f} MiB ({row.upstream.note}) | {own:.0f} MiB ({row.ours.note})"
        return f"{start} {notes} | {_times(theirs / own)} | | | | | | {floor} | {verdict} |"
    times = row.times("p50_ms")
    between = f" ({_times(min(times))}..{_times(max(times))})" if times else ""
    cells = (
        row.upstream.note or _number(median(row.upstream.p50_ms)),
        _number(median(row.ours.p50_ms)),
        _times(row.ratio("p50_ms")) + between,
        _number(median(row.upstream.cpu_ms)),
        f"{_number(median(row.ours.cpu_ms))} ({_number(median(row.ours.database_cpu_ms))})",
        _times(row.ratio("cpu_ms")),
        _number(median(row.ours.per_second)),
        _number(row.ours.p99_ms),
        floor,
        verdict,
    )
    return f"{start} {' | '.join(cells)} |"


def machine_facts() -> dict[str, str]:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": f"{os.cpu_count()} cores ({model[1] if model else 'unknown'}), "
        f"{int(memory[1]) / 2**20 if memory else 0:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}; the load generator runs on the same cores",
    }


_OPENING, _CLOSING = "<!-- figures -->\n", "<!-- end of the figures -->\n"


def replace_run(page: Path, run: str, text: str) -> None:
    """Replaces the rows of `run` in the table of a page with those of `text`, the Markdown of a run.

    The block of figures has a line per run (when, where, how) and one table whose first column is the run. The text around
    the block is written by hand. Earlier figures of the run are in git.
    """
    old = page.read_text() if page.exists() else f"# {page.stem.capitalize()}\n"
    if _OPENING not in old:
        old = f"{old.rstrip()}\n\n## Figures\n\n{_OPENING}{_CLOSING}"
    before, _, rest = old.partition(_OPENING)
    block, _, after = rest.partition(_CLOSING)
    runs = [line for line in block.splitlines() if line.startswith("* **") and not line.startswith(f"* **{run}**")]
    kept = [row for row in block.splitlines() if row.startswith("| ") and not row.startswith((f"| {run} |", "| run |"))]
    table = [line for line in text.splitlines() if line.startswith("|")]
    facts = "; ".join(line.removeprefix("* ") for line in text.splitlines() if line and not line.startswith("|"))
    rows = [f"| {run} {row}" for row in table[2:]]
    lines = [*runs, f"* **{run}**: {facts}", "", f"| run {table[0]}", f"|---{table[1]}", *kept, *rows]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"{before}{_OPENING}" + "".join(f"{line}\n" for line in lines) + f"{_CLOSING}{after}")
