"""The campaign of `make clusters`: attacks every kind of machine of a whole cloud under load, one after another and two
at a time, and checks everything after each attack.

    make clusters ARGS="--minutes 30"          as many attacks as fit, in the order of the table
    make clusters ARGS="--only primary"        the attacks on primaries; also "--only pause" or "--only primary-pause"

Ends with a table. The exit status is 1 if something was wrong.
"""

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests import networks
from tests.debian import unpacked
from tests.servers import ServerMissing, install, installed_program
from tests.system.clusters.cloud import Cloud
from tests.system.clusters.load import Load

KINDS = ("database", "primary", "etcd", "broker", "proxy", "service", "agent")
FAULTS = ("kill", "pause", "cut", "fill", "clock")
#: How long a fault lasts.
LASTS_S = 30.0
#: A killed machine is started again after this time.
DOWN_S = 10.0
#: By how much a wrong clock is ahead.
AHEAD_S = 600
#: What a fault cannot do to a kind, and why.
IMPOSSIBLE = {
    ("proxy", "fill"): "HAProxy writes no files",
    ("etcd", "clock"): "libfaketime does not reach programs in Go",
}
#: Attacked at the same time. The engines survive the loss of one server each.
PAIRS = (
    ("service-kill", "primary-kill"),
    ("etcd-kill", "proxy-kill"),
    ("agent-kill", "broker-kill"),
    ("service-pause", "etcd-pause"),
    ("proxy-pause", "database-pause"),
    ("agent-pause", "primary-pause"),
)
WRITES = ("claims", "flavors", "profiles", "leases")


@dataclass(frozen=True)
class Result:
    attack: str
    #: {kind of write: longest time without an acknowledgement}
    pauses: Mapping[str, float]
    acknowledged: int
    refused: int
    repeated: int
    wrong: tuple[str, ...]

    def row(self) -> str:
        longest = max(self.pauses[kind] for kind in WRITES)
        verdict = "; ".join(self.wrong) or "nothing"
        return (
            f"| {self.attack} | {longest:.1f} | {self.pauses['servers']:.1f} | {self.acknowledged} | {self.refused} | "
            f"{self.repeated} | {verdict} |"
        )


HEAD = (
    "| attack | without writes, s | without a new server, s | acknowledged | refused | repeated | wrong |",
    "|---|---|---|---|---|---|---|",
)


class Campaign:
    def __init__(self, cloud: Cloud, wrong_clock: str, *, lasts_s: float, down_s: float) -> None:
        """`wrong_clock`: the libraries that a process with a wrong clock loads; empty without them."""
        self._cloud, self._wrong_clock = cloud, wrong_clock
        self._lasts_s, self._down_s = lasts_s, down_s
        #: The providers of the loads, which no service owns.
        self._own: set[str] = set()

    def attack(self, *names: str) -> Result:
        """`names`: like ``primary-pause``; several begin at the same time."""
        cloud = self._cloud
        load = Load(cloud.connect, cloud.image, cloud.flavor)
        self._own |= {load.large, load.small}
        since = time.monotonic()
        wrong: list[str] = []
        try:
            cloud.wait_until_well()
            with load:
                since = self._carry_out([(name.partition("-")[0], name.partition("-")[2]) for name in names], load)
            wrong += [*cloud.wait_for_rest(), *load.wrong(), *cloud.wrong(self._own)]
            load.delete_servers()
        except AssertionError as error:
            wrong.append(f"{error}"[:2000])
        pauses = load.figures(since)
        writers = load.writers.values()
        return Result(
            " + ".join(names), pauses, sum(len(writer.acknowledged) for writer in writers),
            sum(writer.refused.total() for writer in writers), sum(writer.repeated for writer in writers), tuple(wrong),
        )  # fmt: skip

    def _carry_out(self, pairs: list[tuple[str, str]], load: Load) -> float:
        """Returns when the attack began. Its faults are over, and each kind of write was acknowledged again."""
        load.more()
        victims = [(self._prepared(*pair), pair[1]) for pair in pairs]
        load.more()
        since = time.monotonic()
        begun: list[tuple[str, str]] = []
        try:
            for victim, fault in victims:
                begun.append((victim, fault))
                self._begin(victim, fault)
            killed = all(fault == "kill" for _, fault in victims)
            time.sleep(self._down_s if killed else self._lasts_s)
        finally:
            for victim, fault in begun:
                self._end(victim, fault)
        self._cloud.wait_until_well()
        load.more()
        return since

    def _prepared(self, kind: str, fault: str) -> str:
        """The victim. The standby that gets a wrong clock becomes the primary."""
        cloud = self._cloud
        victim = cloud.victim(kind)
        if (kind, fault) != ("primary", "clock"):
            return victim
        standby = cloud.victim("database")
        self._restart(standby, AHEAD_S)
        cloud.wait_until_well()
        return victim

    def _begin(self, victim: str, fault: str) -> None:
        machine = self._cloud.machines[victim]
        if fault == "kill":
            self._kill(victim)
        elif fault == "pause":
            machine.signal(signal.SIGSTOP)
        elif fault == "cut":
            machine.cut()
        elif fault == "fill":
            machine.fill()
        elif victim.startswith("db") and self._cloud.nodes[victim] is self._cloud.databases.primary():
            self._kill(victim)  # the other one has the wrong clock
        else:
            self._restart(victim, AHEAD_S)

    def _end(self, victim: str, fault: str) -> None:
        machine = self._cloud.machines[victim]
        if fault == "kill":
            self._cloud.start(victim)
        elif fault == "pause":
            machine.signal(signal.SIGCONT)
        elif fault == "cut":
            machine.mend()
        elif fault == "fill":
            machine.make_room()
        else:
            for name in (victim, *(("db1", "db2") if victim.startswith("db") else ())):
                if self._cloud.nodes[name].environment or self._cloud.nodes[name].has_ended():
                    self._restart(name, 0)
                    self._cloud.wait_until_well()

    def _kill(self, victim: str) -> None:
        self._cloud.machines[victim].kill()
        self._cloud.nodes[victim].kill()

    def _restart(self, victim: str, ahead_s: int) -> None:
        node = self._cloud.nodes[victim]
        self._kill(victim)
        node.environment = {}
        if ahead_s:
            assert self._wrong_clock
            node.environment = {
                "LD_PRELOAD": self._wrong_clock, "FAKETIME": f"+{ahead_s}", "DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }  # fmt: skip
        self._cloud.start(victim)


def attacks() -> Iterator[tuple[str, ...]]:
    """Each alone, then the pairs."""
    for fault in FAULTS:
        for kind in KINDS:
            if (kind, fault) not in IMPOSSIBLE:
                yield (f"{kind}-{fault}",)
    yield from PAIRS


def selected(only: list[str]) -> list[tuple[str, ...]]:
    """`only`: kinds, faults, or attacks; those of which every part is named."""

    def is_named(name: str) -> bool:
        return name in only or bool({*name.split("-")} & {*only})

    return [one for one in attacks() if not only or all(is_named(name) for name in one)]


def prepare(directory: Path) -> str:
    """Everything that has to be downloaded. Returns the libraries for wrong clocks; empty if they cannot be had.

    `directory`: where they may be built. Raises `ServerMissing`.
    """
    install("postgresql")
    install("rabbit")
    installed_program("haproxy")
    unpacked("etcd", "etcd-server")
    try:
        faketime = next(unpacked("faketime", "libfaketime").glob("usr/lib/*/faketime/libfaketimeMT.so.1"))
        if (compiler := shutil.which("cc")) is None:
            raise ServerMissing("there is no C compiler cc (Debian: apt-get install gcc libc6-dev)")
    except ServerMissing as missing:
        print(f"no wrong clocks: {missing}", file=sys.stderr)
        return ""
    source, sleep = Path(__file__).with_name("monotonic_sleep.c"), directory / "monotonic_sleep.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", sleep, source], check=True)
    return f"{sleep}:{faketime}"


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory() as directory:
        return _run(options, prepare(Path(directory)))


def _run(options: argparse.Namespace, wrong_clock: str) -> int:
    networks.enter_own_network()
    give_up = time.monotonic() + options.minutes * 60
    results: list[Result] = []
    left = 0
    print(
        f"{time.strftime('%Y-%m-%d')}, {platform.system()} {platform.release()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.0f}",
        flush=True,
    )
    with Cloud() as cloud:
        campaign = Campaign(cloud, wrong_clock, lasts_s=options.lasts, down_s=min(DOWN_S, options.lasts))
        for names in selected(options.only):
            if not wrong_clock and any(name.endswith("-clock") for name in names):
                continue
            if time.monotonic() > give_up:
                left += 1
                continue
            results.append(campaign.attack(*names))
            print(results[-1].row(), {kind: round(pause, 1) for kind, pause in results[-1].pauses.items()}, flush=True)
    print("\n".join(["", *HEAD, *(result.row() for result in results)]))
    for (kind, fault), reason in IMPOSSIBLE.items():
        print(f"not possible: {kind}-{fault}: {reason}")
    if left:
        print(f"no time was left for {left} attacks")
    return 1 if any(result.wrong for result in results) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make clusters", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no attack later (default: %(default)s)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="KIND",
        help=f"of {', '.join(KINDS)}; {', '.join(FAULTS)}; or like primary-pause",
    )  # fmt: skip
    parser.add_argument("--lasts", type=float, default=LASTS_S, help="seconds of each fault (default: %(default)s)")
    options = parser.parse_args()
    known = {*KINDS, *FAULTS, *(f"{kind}-{fault}" for kind in KINDS for fault in FAULTS)}
    if strange := {*options.only} - known:
        parser.error(f"--only {' '.join(sorted(strange))}: unknown")
    return options


if __name__ == "__main__":
    sys.exit(main())
