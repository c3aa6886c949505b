"""The whole crash campaign: `make crash`.

Runs every database and victim in turn. Ends with a table, and with exit status 1 at the first error.
"""

import argparse
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.crash.campaign import BACK_WITHIN_S, DatabaseCampaign, ServerCampaign
from tests.crash.databases import database_server
from tests.crash.load import Wrong


def main() -> int:
    options = _options()
    machine = f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} cores"
    print(
        f"{time.strftime('%Y-%m-%d')}, {machine}, Python {platform.python_version()}, seed {options.seed}\n", flush=True
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = 0
    with tempfile.TemporaryDirectory(prefix="moorage-crash-", dir="/var/tmp") as place:
        for name, campaign, rounds in _campaigns(options, Path(place)):
            started = time.monotonic()
            print(f"== {name}", flush=True)
            try:
                campaign.run(rounds)
            except KeyboardInterrupt:
                print("ended early")
                status = 1
            except Wrong as error:
                print(f"WRONG: {error}\n{campaign.server_log}")
                status = 1
            summary = campaign.world.summary
            print("\n".join(summary.lines()))
            print(f"in {time.monotonic() - started:.0f} s\n", flush=True)
            if summary.back_s and summary.quantile(1) > BACK_WITHIN_S:
                print(f"WRONG: not always back within {BACK_WITHIN_S} s")
                status = 1
    return status


def _campaigns(
    options: argparse.Namespace, place: Path
) -> Iterator[tuple[str, ServerCampaign | DatabaseCampaign, int]]:
    if "sqlite" in options.databases and "server" in options.victims:
        for zygote, rounds in ((True, options.rounds), (False, options.commands)):
            directory = place / f"sqlite-{zygote}"
            campaign = ServerCampaign(
                directory, f"sqlite:///{directory}/placement.db", seed=options.seed, zygote=zygote
            )
            yield f"SQLite, the server is killed{'' if zygote else ', started by its command'}", campaign, rounds
    for kind in ("postgresql", "mariadb"):
        if kind not in options.databases:
            continue
        with database_server(kind) as database:
            for zygote, rounds in ((True, options.rounds), (False, options.commands)):
                if "server" in options.victims:
                    database.empty()
                    campaign = ServerCampaign(
                        place / f"{kind}-{zygote}", database.url, seed=options.seed, zygote=zygote
                    )
                    text = f"{kind}, the server is killed{'' if zygote else ', started by its command'}"
                    yield text, campaign, rounds
            if "database" in options.victims:
                database.empty()
                yield (
                    f"{kind}, the database is killed",
                    DatabaseCampaign(place / f"{kind}-database", database, seed=options.seed),
                    options.rounds,
                )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000, help="kills of each victim (default: %(default)s)")
    parser.add_argument(
        "--commands", type=int, default=50, help="kills of one that a new interpreter starts (%(default)s)"
    )
    parser.add_argument(
        "--databases", nargs="+", default=["sqlite", "postgresql"], choices=["sqlite", "postgresql", "mariadb"]
    )
    parser.add_argument("--victims", nargs="+", default=["server", "database"], choices=["server", "database"])
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
