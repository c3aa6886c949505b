"""Benchmarks: upstream Placement and Moorage side by side (the ratio table), or Moorage alone at scale.

usage: python -m bench [--full] [--database postgresql|sqlite|mariadb] [--hosts 1000,10000] [--write] ...
       python -m bench million|large|growth|processes|explain|index|scale|agents [--database ...] [--write] ...
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path

from bench import alone, report, servers
from bench.databases import KINDS
from bench.plan import stages
from bench.results import Row
from bench.run import Run, Settings, say

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "evidence" / "bench" / "placement.md"


def main() -> int:
    if sys.argv[1:2] and not sys.argv[1].startswith("-"):
        return alone.main(sys.argv[1:])
    asked = _arguments()
    if not (servers.UPSTREAM / "gunicorn").exists():
        sys.exit("error: upstream is not installed; make .venv-bench/.done")
    settings = Settings(
        database=asked.database,
        rounds=asked.rounds or (5 if asked.full else 3),
        round_s=asked.seconds or (2.0 if asked.full else 0.5),
        patience_s=asked.patience or (60.0 if asked.full else 8.0),
        budget_s=asked.budget or (5400.0 if asked.full else 270.0),
        ports=asked.ports,
        only=asked.only,
    )
    hosts = asked.hosts or ([1000, 10_000] if asked.full else [1000])
    planned = [one for one in stages(hosts, full=asked.full) if asked.profile in (None, one.cloud.profile)]
    run, load_before = Run(settings), os.getloadavg()[0]
    say(report.head())
    try:
        run.run(planned)
    finally:
        _finish(run, load_before, asked, hosts)
    return 0


def _finish(run: Run, load_before: float, asked: argparse.Namespace, hosts: list[int]) -> None:
    mode = "full" if asked.full else "quick"
    facts = report.machine_facts() | {
        "run": f"{mode}, {run.settings.rounds} rounds of {run.settings.round_s} s in turns, "
        f"{time.monotonic() - run.started:.0f} s in all",
        "versions": _versions(run),
        "shared with others": _strangers(run.rows, load_before),
    }
    text = report.markdown(run.rows, facts, run.remarks)
    out = ROOT / "build" / "bench"
    out.mkdir(parents=True, exist_ok=True)
    name = f"{asked.database}-{mode}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    (out / f"{name}.md").write_text(text)
    document = {"facts": facts, "remarks": run.remarks, "rows": [dataclasses.asdict(row) for row in run.rows]}
    (out / f"{name}.json").write_text(json.dumps(document, indent=1))
    if asked.write:
        part = f", {asked.profile} alone" if asked.profile else ""
        part += f", {', '.join(f'{number:,}' for number in hosts)} hosts" if asked.hosts else ""
        report.replace_run(PAGE, f"{asked.database}, {mode}{part}", text)
    _summarise(run, facts)
    say(f"\nAll figures: build/bench/{name}.json and .md" + (f"; written to {PAGE.relative_to(ROOT)}" * asked.write))


def _summarise(run: Run, facts: dict[str, str]) -> None:
    say("")
    for name, value in facts.items():
        say(f"{name}: {value}")
    say("CPU counts the server's processes and its database server's; for SQLite the database is inside the server.")
    for text in report.headlines(run.rows) if run.settings.database == "postgresql" else ():
        say(text)


def _versions(run: Run) -> str:
    ours = f"moorage {version('moorage')} on its own server"
    theirs = f"openstack-placement {servers.upstream_version()} on gunicorn {servers.upstream_version('gunicorn')}"
    databases = ", ".join(f"{name} {number}" for name, number in run.versions.items())
    return f"{theirs}; {ours}; {databases}"


def _strangers(rows: list[Row], load_before: float) -> str:
    cores = [row.strangers for row in rows if row.clients]
    used = f"{statistics.median(cores):.2f} (up to {max(cores):.2f})" if cores else "unknown"
    return f"others used {used} of the cores during the rows, load average before the run {load_before:.1f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--full",
        action="store_true",
        help="also measure 10,000 hosts, with longer rounds and more rows (about an hour)",
    )
    parser.add_argument("--database", choices=KINDS, default="postgresql")
    parser.add_argument("--hosts", type=_numbers, help="sizes of the flat cloud, for example 1000,10000")
    parser.add_argument("--profile", choices=("flat", "nested", "sharing", "wide"), help="only this kind of cloud")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows with this text in their name")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="duration of each round")
    parser.add_argument("--patience", type=float, help="timeout in seconds for one answer of upstream (wide trees)")
    parser.add_argument("--budget", type=float, help="seconds after which no further row is started")
    parser.add_argument(
        "--ports", type=lambda text: tuple(_numbers(text)), help="ports of upstream and Moorage; free ones by default"
    )
    parser.add_argument("--write", action="store_true", help="write the figures to docs/evidence/bench/placement.md")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
