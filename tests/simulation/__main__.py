"""The simulation: `make simulate`. Runs all services under virtual time with seeded faults, seed after seed.

Runs for --minutes, or the one --seed. Ends with a table, and with exit status 1 at the first error.
"""

import argparse
import dataclasses
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from datetime import timedelta

from tests.simulation.dice import KINDS
from tests.simulation.run import Course, Summary, run


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Python orders sets of strings by a random hash. Without this, a seed would give a different run each time.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    only = set(options.only or KINDS)
    course = Course(
        rounds=options.rounds,
        stormy=timedelta(days=options.days),
        busy=timedelta(hours=options.pause),
        hosts=options.hosts,
        without=sorted(KINDS.keys() - only | set(options.without)),
        fury=options.fury,
        until=options.until,
    )
    if options.seed is not None:
        summary = run(options.seed, course, print if options.story or options.until else None)
        if options.shrink and summary.wrong:
            course = _shrunk(options.seed, course, summary)
            print(f"the error also occurs with --only {' '.join(sorted(KINDS.keys() - set(course.without)))}")
        return _report(summary)
    total, began = Summary(), time.perf_counter()
    for summary in _until_time_is_up(options, course):
        total.add(summary)
        if summary.wrong:
            total.wrong = summary.wrong
            break
    hours = (time.perf_counter() - began) / 3600
    print(f"{'hours':<24}{hours:>12,.3f}   ({total.years / hours:,.1f} years an hour, {options.jobs} processes)")
    return _report(total)


def _until_time_is_up(options: argparse.Namespace, course: Course) -> Iterator[Summary]:
    began = time.perf_counter()
    seeds = (str(options.first + number) for number in range(10**9))
    # A process per seed, so that seeds share no memory and --seed repeats the same events.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.simulation.run"])
    with processes.Pool(options.jobs, maxtasksperchild=1) as pool:
        waiting = [pool.apply_async(run, (next(seeds), course)) for _ in range(options.jobs)]
        while waiting:
            summary = waiting.pop(0).get()
            if time.perf_counter() - began < options.minutes * 60 and not summary.wrong:
                waiting.append(pool.apply_async(run, (next(seeds), course)))
            yield dataclasses.replace(summary)


def _shrunk(seed: str, course: Course, summary: Summary) -> Course:
    """`course` without the kinds of faults that the error does not need; tries to leave out one after the other."""
    for kind in sorted(summary.faults):
        less = dataclasses.replace(course, without=[*course.without, kind])
        if run(seed, less).wrong:
            course = less
    return course


def _report(total: Summary) -> int:
    per_second = total.simulated / timedelta(seconds=total.wall_s)
    print(f"{'seeds':<24}{total.seeds:>12,}")
    print(f"{'simulated years':<24}{total.years:>12,.2f}")
    print(f"{'process seconds':<24}{total.wall_s:>12,.0f}")
    print(
        f"{'years per process hour':<24}{total.years / total.wall_s * 3600:>12,.1f}   ({per_second:,.0f} s per second)"
    )
    print(f"{'steps':<24}{total.steps:>12,}")
    print(f"{'checks without faults':<24}{total.settled:>12,}")
    for kind, often in sorted(total.faults.items()):
        print(f"  {kind:<22}{often:>12,}   {KINDS[kind][1]}")
    for action, often in sorted(total.done.items()):
        print(f"  {action.replace('_', ' '):<22}{often:>12,}")
    if total.digest:
        print(f"digest of the story: {total.digest}")
    if total.wrong:
        print(f"WRONG: {total.wrong}")
    return 1 if total.wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="duration of the run (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="parallel processes (default here: %(default)s)"
    )
    parser.add_argument("--seed", help="run only this seed")
    parser.add_argument("--story", action="store_true", help="with --seed: print every event")
    parser.add_argument("--until", type=int, help="with --seed: stop at this step, and print every event")
    parser.add_argument(
        "--shrink", action="store_true", help="with --seed: find the kinds of faults that the error needs"
    )
    parser.add_argument(
        "--rounds", type=int, default=4, help="periods with faults, each followed by one without (default: %(default)s)"
    )
    parser.add_argument(
        "--days", type=float, default=12.0, help="length of a period with faults (default: %(default)s)"
    )
    parser.add_argument(
        "--pause", type=float, default=4.0, help="mean hours between two actions of users (default: %(default)s)"
    )
    parser.add_argument(
        "--fury", type=float, default=1.0, help="multiplies the probability of faults (default: %(default)s)"
    )
    parser.add_argument("--hosts", type=int, default=4, help="hosts, each with accelerators (default: %(default)s)")
    parser.add_argument(
        "--only", nargs="+", choices=KINDS, metavar="KIND", help=f"only these kinds of faults: {', '.join(KINDS)}"
    )
    parser.add_argument("--without", nargs="+", default=[], choices=KINDS, metavar="KIND", help="all but these")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
