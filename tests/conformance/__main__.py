"""`make conformance`: runs Placement's own tests against our placement; with --compare, compares full answers."""

import argparse
import sys
from collections import Counter

from tests.conformance.conform import compare, our_servers, run_suite
from tests.conformance.explained import explanation_of

DATABASES = ("sqlite", "postgresql", "mariadb")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make conformance ARGS=...", description=__doc__)
    parser.add_argument("--database", nargs="+", choices=DATABASES, default=DATABASES)
    parser.add_argument("--front", choices=("literal", "server"), default="literal", help="what serves ours")
    parser.add_argument("--select", nargs="+", default=["*"], metavar="FILE", help="names or globs, without .yaml")
    parser.add_argument("--compare", action="store_true", help="the answers of a real Placement and ours, in full")
    asked = parser.parse_args()
    if asked.compare:
        return _compare()
    options = ["--select", *asked.select]
    if asked.front == "server":
        options.append("--relax-malformed-http")
    good = True
    for database in asked.database:
        with our_servers(database, asked.front) as urls:
            report = run_suite(urls, *options)
        print(f"{database}: {report.text}", end="", flush=True)
        good = good and report.passed > 0 and not report.others
    return 0 if good else 1


def _compare() -> int:
    """Prints the unexplained differences, and counts the others."""
    explained: Counter[str] = Counter()
    unexplained = 0
    for difference in compare():
        if explanation := explanation_of(difference):
            explained[explanation.heading] += 1
        else:
            unexplained += 1
            print(difference)
    for heading, number in explained.most_common():
        print(f"{number:5}  {heading}")
    print(f"{explained.total()} differences that docs/wire/differences.md explains, {unexplained} that it does not")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
