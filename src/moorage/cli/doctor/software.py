"""Checks the versions of Python, SQLite and all required packages, including the extras in use."""

import platform
import re
import sqlite3
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from moorage.cli.doctor.finding import CheckFinding, broken, fine, warning
from moorage.config import Config

MIN_PYTHON = (3, 11)
#: The first version with `RETURNING`, which job claims need.
MIN_SQLITE = (3, 35)

#: {requirement: (its module, Debian's package of it)}. Moorage's Debian package has links to these modules of Debian's,
#: whose metadata stay where Debian has them.
_DEBIANS_OWN = {"libvirt-python": ("libvirt", "python3-libvirt")}

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*([^;]*)(?:;.*extra == [\"']([\w-]+)[\"'])?")
_BOUND = re.compile(r"(>=|<=|==|!=|<|>)\s*([0-9.]+)")


def check_versions(config: Config) -> Iterator[CheckFinding]:
    if sys.version_info < MIN_PYTHON:
        yield broken("python", f"Python {platform.python_version()} is too old", sys.executable, "use 3.11 or newer")
    else:
        yield fine("python", f"Python {platform.python_version()}", sys.executable)
    if sqlite3.sqlite_version_info < MIN_SQLITE and _uses(config, "sqlite"):
        yield broken(
            "sqlite", f"SQLite {sqlite3.sqlite_version} is too old", "", "use a Python with SQLite 3.35 or newer"
        )
    yield from _packages(metadata.version("moorage"), metadata.requires("moorage") or [], extras_of(config))


def _packages(version: str, requirements: list[str], extras: frozenset[str]) -> Iterator[CheckFinding]:
    wrong = list(_wrong_packages(requirements, extras))
    yield from wrong
    if not wrong:
        with_extras = f" with {', '.join(sorted(extras))}" if extras else ""
        yield fine(
            "packages", f"moorage {version}{with_extras}, all {len(requirements)} requirements are met or not in use"
        )


def _wrong_packages(requirements: list[str], extras: frozenset[str]) -> Iterator[CheckFinding]:
    for text in requirements:
        found = _REQUIREMENT.match(text)
        if found is None or (found[3] and found[3] not in extras):
            continue
        name, bounds, extra = found[1], found[2].strip(), found[3]
        remedy = f"pip install 'moorage[{extra}]'" if extra else f"pip install '{name}{bounds}'"
        if name in _DEBIANS_OWN and Path(sys.prefix, "debian").is_dir():
            remedy = f"apt-get install {_DEBIANS_OWN[name][1]}"
        installed = _installed_version(name)
        if installed is None:
            yield broken("packages", f"{name} is not installed", sys.prefix, remedy)
            continue
        if not _fits(installed, bounds):
            yield warning(
                "packages", f"{name} {installed} is installed, but Moorage needs {bounds}", sys.prefix, remedy
            )


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        spec = find_spec(_DEBIANS_OWN[name][0]) if name in _DEBIANS_OWN else None
        where = [str(Path(spec.origin).resolve().parent)] if spec and spec.origin else []
        return next((found.version for found in metadata.distributions(name=name, path=where)), None)


def _fits(version: str, bounds: str) -> bool:
    installed = _numbers(version)
    compare = {
        ">=": lambda wanted: installed >= wanted,
        "<=": lambda wanted: installed <= wanted,
        "<": lambda wanted: installed < wanted,
        ">": lambda wanted: installed > wanted,
        "==": lambda wanted: installed == wanted,
        "!=": lambda wanted: installed != wanted,
    }
    return all(compare[sign](_numbers(wanted)) for sign, wanted in _BOUND.findall(bounds))


def _numbers(version: str) -> tuple[int, ...]:
    """The release numbers: ``4.2.0rc1`` is (4, 2)."""
    release = re.match(r"[0-9.]+", version)
    numbers = [int(part) for part in (release[0] if release else "0").split(".") if part]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def extras_of(config: Config) -> frozenset[str]:
    """The extras of the package that this configuration needs."""
    wanted = {
        "postgres": _uses(config, "postgres") or config.plane.hints.startswith("postgres"),
        "mysql": _uses(config, "mysql") or _uses(config, "mariadb"),
        "rabbit": config.plane.hints.startswith("amqp"),
        "keystone": config.identity.mode == "keystone",
        "libvirt": "agent" in config.runs and config.agent.virt_driver == "libvirt",
        "nvidia": bool(config.runs & {"agent", "accelerator-agent"}) and "nvidia" in config.accelerator.drivers,
        "signatures": bool(config.accelerator.signature_keys),
        "otel": bool(config.tracing.endpoint),
    }
    return frozenset(name for name, is_wanted in wanted.items() if is_wanted)


def _uses(config: Config, scheme: str) -> bool:
    return any(url.startswith(scheme) for url in config.database_urls().values())
