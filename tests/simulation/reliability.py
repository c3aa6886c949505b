"""`make reliability`: runs the simulation and the crash campaign in turn until the time is up, and prints a table.

Each piece is a command line, so that every error can be reproduced by hand.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

#: Kills in one piece of the crash campaign: a minute or two.
_ROUNDS = 40
#: Every point at which an operation can be killed, on its host and in the reservation service.
_EXPLORED = ("tests/crash/test_operations.py", "tests/wire/reservation/test_disturbed.py")
_EXPLORING_S = 20 * 60.0
_NAMES = {"tests.simulation": "simulation", "tests.crash": "crashes"}


@dataclass(frozen=True)
class Piece:
    command: Sequence[str]
    seconds: float
    status: int
    said: str


def main() -> int:
    options = _options()
    ends = time.monotonic() + options.minutes * 60
    pieces: list[Piece] = []
    number = options.seed
    while not pieces or (time.monotonic() < ends and not pieces[-1].status):
        left_minutes = max(0.2, (ends - time.monotonic()) / 60)
        # Half of the time for each, in short pieces that alternate.
        minutes = round(min(left_minutes / 2, 10.0), 2)
        pieces.append(_run("tests.simulation", "--minutes", str(minutes), "--first", str(number * 1000)))
        if not pieces[-1].status and not options.no_crash:
            campaign = ("tests.crash", "--rounds", str(_ROUNDS), "--commands", "2", "--seed", str(number))
            pieces.append(_run(*campaign))
        # These try all points and take a quarter of an hour.
        if not pieces[-1].status and not options.no_crash and ends - time.monotonic() > _EXPLORING_S:
            path = _EXPLORED[(number - options.seed) % len(_EXPLORED)]
            pieces.append(_run("tests.servers", sys.executable, "-m", "pytest", "-q", "-n", "2", path, EXPLORE="1"))
        number += 1
    print("\n".join(_table(pieces)))
    return max(piece.status for piece in pieces)


def _run(module: str, *arguments: str, **environment: str) -> Piece:
    command = [sys.executable, "-m", module, *arguments]
    print(
        f"== {' '.join(f'{name}={value}' for name, value in environment.items())} {' '.join(command[1:])}", flush=True
    )
    began = time.monotonic()
    surroundings = os.environ | {"PYTHONUNBUFFERED": "1"} | environment
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=surroundings) as one:
        for line in one.stdout or ():
            print(line, end="", flush=True)
            said.append(line)
    return Piece(command, time.monotonic() - began, one.returncode, "".join(said))


def _table(pieces: Sequence[Piece]) -> list[str]:
    """One line per piece: its name, its duration, what it did, and the errors."""
    lines = ["", f"{'what':<14}{'s':>6}  {'did':<66}wrong"]
    for piece in pieces:
        wrong = re.findall(r"^(?:WRONG:|FAILED) (.*)", piece.said, re.MULTILINE)
        name = _NAMES.get(piece.command[2], "points")
        lines.append(f"{name:<14}{piece.seconds:>6.0f}  {_did(piece.said):<66}{'; '.join(wrong)[:100] or '-'}")
    return lines


def _did(said: str) -> str:
    if kills := re.findall(r"^(\d+) kills", said, re.MULTILINE):
        return f"{sum(int(one) for one in kills):,} kills"
    if ended := re.findall(r"^(\d+ passed.*) in", said, re.MULTILINE):
        return str(ended[-1])
    figures = {
        name: re.search(rf"^{name}\s+([\d.,]+)", said, re.MULTILINE) for name in ("simulated years", "seeds", "steps")
    }
    found = {name: match[1].rstrip(",") for name, match in figures.items() if match}
    return ", ".join(f"{value} {name}" for name, value in found.items())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make reliability", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="approximate duration (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=1, help="number that determines the seeds and the kills (default: %(default)s)"
    )
    parser.add_argument("--no-crash", action="store_true", help="run only the simulation")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
