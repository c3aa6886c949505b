"""`make conformance`: Placement's own tests against our placement."""

import argparse
import sys

from tests.conformance.conform import our_servers, run_suite

DATABASES = ("sqlite", "postgresql", "mariadb")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make conformance ARGS=...", description=__doc__)
    parser.add_argument("--database", nargs="+", choices=DATABASES, default=DATABASES)
    parser.add_argument("--front", choices=("literal", "granian"), default="literal", help="what serves ours")
    parser.add_argument("--select", nargs="+", default=["*"], metavar="FILE", help="names or globs, without .yaml")
    asked = parser.parse_args()
    options = ["--select", *asked.select]
    if asked.front == "granian":
        options.append("--relax-malformed-http")
    good = True
    for database in asked.database:
        with our_servers(database, asked.front) as urls:
            report = run_suite(urls, *options)
        print(f"{database}: {report.text}", end="", flush=True)
        good = good and not report.others
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
