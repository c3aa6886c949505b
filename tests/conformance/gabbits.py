"""The files of the suite, read from the installed openstack-placement; this repository contains none of them."""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.conformance.variants import variant_of
from tests.conformance.worlds import WORLDS


@dataclass(frozen=True)
class Gabbit:
    """One file. `suite` is its content, which gabbi may change; load it anew for each run."""

    path: Path
    fixture: str
    suite: dict

    @property
    def variant(self) -> str:
        return variant_of(self.fixture)


def gabbits() -> Iterator[Gabbit]:
    """All files, by name."""
    spec = importlib.util.find_spec("placement")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("openstack-placement is not installed here; make .venv-conformance/.done")
    directory = Path(next(iter(spec.submodule_search_locations))) / "tests" / "functional" / "gabbits"
    for path in sorted(directory.glob("*.yaml")):
        yield _load(path)


def _load(path: Path) -> Gabbit:
    # Like gabbi, but with the YAML parser that is written in C: 1 s for all files instead of 6.
    suite = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    fixtures = suite.get("fixtures") or []
    if len(fixtures) != 1 or fixtures[0] not in WORLDS:
        raise SystemExit(f"{path.name}: worlds.py has no world for the fixtures {fixtures}")
    return Gabbit(path, fixtures[0], suite)
