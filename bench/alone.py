"""The command line for benchmarks of Moorage alone: maps each command to its figures."""

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench import agents, arqs, floor, index, launches, regions, report, reservations, scale, scheduler
from bench.databases import KINDS
from bench.table import Figure, line, markdown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "evidence" / "bench" / "scale.md"
#: {command: page} for commands with their own page.
PAGES = {
    name: PAGE.with_name(f"{name}.md")
    for name in ("agents", "arqs", "launches", "scheduler", "reservations", "regions")
}
PAGES["lease-events"] = PAGES["calendar-pages"] = PAGES["reservations"]
PAGES["floor"] = PAGE.with_name("floor.md")
PAGES["explain"] = PAGE.with_name("explain.md")

#: In the order in which `scale` runs them, the fastest first.
COMMANDS = ("index", "explain", "large", "growth", "processes", "million")


def main(arguments: list[str]) -> int:
    asked = _arguments(arguments)
    load, started, found = os.getloadavg()[0], time.monotonic(), list[Figure]()

    def say(figure: Figure) -> None:
        print(line(figure), flush=True)
        if not figure.measure.startswith(" "):  # progress
            found.append(figure)

    commands: dict[str, Callable[[], None]] = {
        "index": lambda: index.figures(asked.index_hosts, say),
        "explain": lambda: scale.explain(
            asked.database, say, hosts=asked.explain_hosts, profiles=asked.explain_profiles, seconds=asked.seconds
        ),
        "large": lambda: scale.large(asked.database, say, hosts=62_500, servers_per_host=5),
        "growth": lambda: scale.growth(asked.database, say, hosts=asked.growth_hosts, seconds=asked.seconds),
        "processes": lambda: scale.processes(
            asked.database, say, hosts=1000, number=asked.processes, seconds=asked.seconds
        ),
        "floor": lambda: floor.figures(say, hosts=1000, seconds=asked.seconds),
        "agents": lambda: agents.figures(asked.database, say, hosts=asked.agents, seconds=asked.window),
        "arqs": lambda: arqs.figures(asked.database, say, present=asked.arqs, seconds=asked.seconds),
        "launches": lambda: launches.figures(asked.database, say, seconds=asked.seconds),
        "scheduler": lambda: scheduler.figures(asked.database, say, hosts=asked.scheduler_hosts, seconds=asked.seconds),
        "reservations": lambda: reservations.figures(
            asked.database, say, hosts=asked.reserved_hosts, leases=asked.leases, seconds=asked.seconds, patience_s=90.0
        ),
        "regions": lambda: regions.figures(asked.database, say),
        "calendar-pages": lambda: reservations.pages(
            asked.database, say, hosts=asked.reserved_hosts, leases=asked.leases, seconds=asked.seconds
        ),
        "lease-events": lambda: reservations.events(asked.database, say, number=asked.events, starts=asked.starts),
        "million": lambda: scale.million(asked.database, say, claims=asked.claims, hosts=5000, clients=asked.clients),
    }
    try:
        for word in COMMANDS if asked.command == "scale" else (asked.command,):
            print(f"\n{word}", flush=True)
            commands[word]()
    finally:
        facts = {
            "run": f"{_run_name(asked)}, {time.monotonic() - started:.0f} s in all; "
            f"load average before it {load:.1f}, after it {os.getloadavg()[0]:.1f}"
        }
        _keep(asked, found, facts)
    return 0


def _keep(asked: argparse.Namespace, found: list[Figure], facts: dict[str, str]) -> None:
    out = ROOT / "build" / "bench"
    out.mkdir(parents=True, exist_ok=True)
    name = f"{asked.command}-{asked.database}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    text = markdown(found, facts)
    (out / f"{name}.md").write_text(text)
    (out / f"{name}.json").write_text(json.dumps({"facts": facts, "figures": [asdict(one) for one in found]}, indent=1))
    page = PAGES.get(asked.command, PAGE)
    if asked.write:
        report.replace_run(page, _run_name(asked), text)
    print(f"\nAll figures: build/bench/{name}.json and .md" + (f"; written to {page.relative_to(ROOT)}" * asked.write))


def _run_name(asked: argparse.Namespace) -> str:
    return "index" if asked.command == "index" else f"{asked.command}, {asked.database}"


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "command",
        choices=(*COMMANDS, "scale", *PAGES),
        help="minimum cost of a durable write; select and claim; servers from POST to ACTIVE and lives of leases, beside a real Nova; accelerator requests; leases beside many others; leases in several regions; many lease "
        "events in one minute; load of a thousand agents; a million claims; a million allocations; up to 100,000 hosts; several "
        "processes; a million hosts in the index alone; explanations beside their queries; or all of these",
    )
    parser.add_argument("--database", choices=KINDS, default="postgresql")
    parser.add_argument("--claims", type=int, default=1_000_000, help="number of claims for `million`")
    parser.add_argument("--clients", type=int, default=32, help="number of clients for `million`")
    parser.add_argument("--index-hosts", type=int, default=1_000_000)
    parser.add_argument("--explain-hosts", type=_numbers, default=[1000, 10_000])
    parser.add_argument("--explain-profiles", nargs="+", default=["flat"], choices=("flat", "nested", "sharing"))
    parser.add_argument("--growth-hosts", type=_numbers, default=[1000, 10_000, 100_000])
    parser.add_argument("--agents", type=int, default=1000, help="number of hosts for `agents`")
    parser.add_argument("--window", type=float, default=60.0, help="seconds per measurement of `agents`")
    parser.add_argument(
        "--arqs", type=_numbers, default=[0, 1000, 10_000, 100_000], help="existing requests for `arqs`"
    )
    parser.add_argument("--scheduler-hosts", type=int, default=10_000, help="number of hosts for `scheduler`")
    parser.add_argument(
        "--reserved-hosts", type=int, default=10_000, help="hosts for `reservations` and `calendar-pages`"
    )
    parser.add_argument("--leases", type=int, default=100_000, help="leases for `reservations` and `calendar-pages`")
    parser.add_argument("--events", type=int, default=10_000, help="events for `lease-events`, due within one minute")
    parser.add_argument(
        "--starts", type=int, default=10_000, help="lease starts for `lease-events`, due within one minute"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="seconds per row of `explain`, `growth`, `floor`, ..."
    )
    parser.add_argument("--write", action="store_true", help="write the figures to their page in docs/evidence/bench")
    return parser.parse_args(arguments)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]
