"""Generates the pages of docs/reference from the code: `make reference`.

usage: .venv/bin/python tools/reference_pages.py

tests/docs/test_reference_pages.py fails if a page differs from this output.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.reference import errors, extra_specs, options, routes, states  # noqa: E402 - needs the path from above

DIRECTORY = ROOT / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "errors": errors.page,
    "extra-specs": extra_specs.page,
    "options": options.page,
    "routes": routes.page,
    "states": states.page,
}


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (DIRECTORY / f"{name}.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
