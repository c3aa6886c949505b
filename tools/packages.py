"""Reports on the locked packages: a bill of materials (SBOM), the licences, and known vulnerabilities.

usage: .venv/bin/python tools/packages.py sbom [FILE]               CycloneDX 1.6, without network; dist/moorage.cdx.json
       .venv/bin/python tools/packages.py licences                  writes docs/reference/licences.md
       .venv/bin/python tools/packages.py vulnerabilities --osv DIRECTORY
                                                                    against an export of the OSV database: JSON files
       .venv/bin/python tools/packages.py vulnerabilities           asks the service of pip-audit (.venv-audit)

Exit codes of `vulnerabilities`: 0 none known, 1 some known, 3 the service could not be asked. pip-audit exits with 0 also
if its service has no data about a package (for example behind a mirror of an index without them); here that is a 3.
"""

import argparse
import importlib.metadata
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
#: The lock files of the runtime and of each extra. A package is counted for the first one that contains it.
LOCKS = ("runtime", "keystonemiddleware", "libvirt", "nvidia", "otel", "signatures", "oidc")
PAGE = ROOT / "docs" / "reference" / "licences.md"
HEAD = """<!-- written by tools/packages.py: `make licences` -->

# Licences of the packages that Moorage needs

`make licences` reads them from the metadata of the locked versions. `tests/docs/test_packages.py` fails for a licence outside its list.
Packages under the LGPL are used unmodified, as separate libraries; they are extras, and the embedded mode needs none.

| package | licence | needed by |
|---|---|---|
"""
#: Licences of locked packages that are not installed on every system (built on the host, other Pythons or systems).
NOT_INSTALLED = {"libvirt-python": "LGPL-2.0-or-later", "legacy-cgi": "PSF-2.0", "tzdata": "Apache-2.0"}
#: {licence text in package metadata: SPDX identifier}
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause", "Apache 2.0": "Apache-2.0", "Apache Software License": "Apache-2.0", "BSD": "BSD-3-Clause", "BSD License": "BSD-3-Clause",
    "MIT License": "MIT", "LGPL-v2.0-or-later": "LGPL-2.0-or-later", "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}  # fmt: skip


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    needed_by: str
    hashes: tuple[str, ...]  #: sha256 of its files


def locked() -> dict[tuple[str, str], Package]:
    """{(name, version): package} of all locks; a package may have several versions for different Pythons."""
    found: dict[tuple[str, str], Package] = {}
    for lock in LOCKS:
        for entry in re.split(r"(?<!\\)\n", (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")):
            if named := re.match(r"([A-Za-z0-9._-]+)(?:\[[\w,-]+\])?==([^\s;\\]+)", entry):
                key = (canonicalize_name(named[1]), named[2])
                hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
                found.setdefault(key, Package(*key, lock, hashes))
    return found


def sbom() -> dict[str, object]:
    components = []
    for package in sorted(locked().values(), key=lambda one: (one.name, one.version)):
        purl = f"pkg:pypi/{package.name}@{package.version}"
        licence = {"expression": licence_of(package.name)}
        # A package has several files, but a component only one hash of each kind, so the hashes are properties.
        hashes = [{"name": "moorage:sha256", "value": digest} for digest in package.hashes]
        components.append(
            {"type": "library", "bom-ref": purl, "name": package.name, "version": package.version, "purl": purl,
             "licenses": [licence], "scope": "required" if package.needed_by == "runtime" else "optional", "properties": hashes}
        )  # fmt: skip
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components, sort_keys=True))
    product = {
        "type": "application",
        "bom-ref": "moorage",
        "name": "moorage",
        "version": importlib.metadata.version("moorage"),
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}", "version": 1, "metadata": {"component": product}, "components": components,
        "dependencies": [{"ref": "moorage", "dependsOn": [one["bom-ref"] for one in components]}],
    }  # fmt: skip


def licence_of(name: str) -> str:
    """The SPDX identifier from the metadata of the installed package. Raises `KeyError` if it is unknown."""
    if name in NOT_INSTALLED:
        return NOT_INSTALLED[name]
    metadata = importlib.metadata.metadata(name)
    if expression := metadata.get("License-Expression"):
        return str(expression)
    said = (metadata.get("License") or "").strip()
    if not said or said == "UNKNOWN" or "\n" in said:
        classifiers = [
            text.split(" :: ")[-1] for text in metadata.get_all("Classifier") or [] if text.startswith("License")
        ]
        said = classifiers[0] if classifiers else ""
    return SPDX.get(said, said)


def licences() -> str:
    names = {package.name: package.needed_by for package in reversed(locked().values())}
    return HEAD + "".join(f"| {name} | {licence_of(name)} | {names[name]} |\n" for name in sorted(names))


# ----------------------------------------------------------------------------------------------- vulnerabilities


def known(directory: Path) -> Iterator[tuple[Package, str, str]]:
    """[(package, ID, summary)] of the advisories in an OSV export that affect a locked version."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.rglob("*.json"))]
    if not records:
        raise FileNotFoundError(f"{directory} holds no advisory: an export of OSV is one JSON file for each")
    for record in records:
        if record.get("withdrawn"):
            continue
        for affected in record.get("affected", ()):
            named = affected.get("package", {})
            for package in locked().values():
                same = (named.get("ecosystem"), canonicalize_name(named.get("name", ""))) == ("PyPI", package.name)
                if same and is_affected(package.version, affected):
                    yield package, record["id"], record.get("summary", "")


def is_affected(version: str, affected: dict[str, list[Any]]) -> bool:
    """Whether an OSV entry affects the version, by `versions`, ``[introduced, fixed)`` or ``[introduced, last_affected]``."""
    if version in affected.get("versions", ()):
        return True
    for span in affected.get("ranges", ()):
        if span.get("type") != "ECOSYSTEM":
            continue
        inside = False
        for event in span["events"]:
            if "introduced" in event:
                inside = inside or event["introduced"] == "0" or at_least(version, event["introduced"])
            elif "fixed" in event:
                inside = inside and not at_least(version, event["fixed"])
            elif "last_affected" in event:
                inside = inside and at_least(event["last_affected"], version)
        if inside:
            return True
    return False


def at_least(version: str, other: str) -> bool:
    try:
        return Version(version) >= Version(other)
    except InvalidVersion:
        return True  # a version that cannot be compared is reported


def ask_service() -> int:
    """Runs pip-audit with the package index's service on every lock."""
    locks = [f"--requirement={ROOT / 'requirements' / f'{lock}.txt'}" for lock in LOCKS]
    command = [
        ROOT / ".venv-audit/bin/pip-audit",
        "--disable-pip",
        "--require-hashes",
        "--strict",
        "--progress-spinner=off",
        *locks,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return verdict(done.returncode, done.stdout + done.stderr)


def verdict(code: int, said: str) -> int:
    if code == 0:
        print(said.strip())
        return 0
    if "Found " in said and " known vulnerabilit" in said:
        print(said.strip())
        return 1
    reason = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
    print(f"not asked: pip-audit got no answer about every package: {reason.strip()[:300]}")
    print("an export of the OSV database does it without network: tools/packages.py vulnerabilities --osv DIRECTORY")
    return 3


def main() -> int:
    parser = argparse.ArgumentParser(description="What Moorage is shipped with.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("sbom").add_argument("file", nargs="?", type=Path, default=ROOT / "dist" / "moorage.cdx.json")
    commands.add_parser("licences")
    commands.add_parser("vulnerabilities").add_argument("--osv", type=Path)
    asked = parser.parse_args()
    if asked.command == "sbom":
        asked.file.parent.mkdir(parents=True, exist_ok=True)
        asked.file.write_text(json.dumps(sbom(), indent=1) + "\n", encoding="utf-8")
        print(asked.file)
    elif asked.command == "licences":
        PAGE.write_text(licences(), encoding="utf-8")
    elif asked.osv is None:
        return ask_service()
    else:
        try:
            found = list(known(asked.osv))
        except FileNotFoundError as error:
            print(f"not asked: {error}")
            return 3
        for package, advisory, summary in found:
            print(f"{package.name} {package.version}: {advisory} {summary}")
        print(f"{len(locked())} packages, {len(found)} known vulnerabilities")
        return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
