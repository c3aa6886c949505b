"""`make differential`: sends random requests to upstream Placement and to ours until something differs.

ARGS="--seeds 0 500" tries more seeds; ARGS="--replay FILE" sends a script again (one request per line).
"""

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from tests.differential.scripts import script
from tests.differential.sides import Ours, Upstream
from tests.differential.twins import Twins, from_text, to_text
from tests.servers import temporary_database


def main() -> int:
    parser = argparse.ArgumentParser(prog="make differential ARGS=...", description=__doc__)
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 100), metavar=("FIRST", "COUNT"))
    parser.add_argument("--length", type=int, default=60, help="requests after the world of each script")
    parser.add_argument("--database", choices=("sqlite", "postgresql", "mariadb"), default="sqlite")
    parser.add_argument("--replay", type=Path, metavar="FILE")
    parser.add_argument("--keep-going", action="store_true", help="with the next seed after a difference")
    parser.add_argument("--whole", action="store_true", help="do not shorten what differs")
    asked = parser.parse_args()
    scripts = {f"seed {seed}": script(seed, asked.length) for seed in range(asked.seeds[0], sum(asked.seeds))}
    if asked.replay:
        scripts = {str(asked.replay): from_text(asked.replay.read_text())}
    bad = 0
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="differential")))
        urls = [stack.enter_context(temporary_database(asked.database)) for _ in range(2)]
        twins = Twins(stack.enter_context(Upstream(directory, urls[0])), stack.enter_context(Ours(directory, urls[1])))
        for name, requests in scripts.items():
            if (found := twins.first(requests)) is None:
                continue
            bad += 1
            print(f"--- {name}, request {found.step}\n{found.difference}", flush=True)
            if not asked.whole:
                print(to_text(twins.shortest(requests, found)), flush=True)
            if not asked.keep_going:
                break
    print(f"{len(scripts)} scripts, {bad} with a difference")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
