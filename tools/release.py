"""Makes a release of the present commit: wheel, Debian package, bill of materials, their checksums, and the tag.

usage: .venv/bin/python tools/release.py [--key KEY] [DIRECTORY]        default: dist/release; prints what it wrote

It signs the checksums (SHA256SUMS.asc) and the tag with GnuPG, with the key KEY or that of git's user.signingKey. The
tag comes last: there is none if anything failed. A repeated run begins again, unless the tag exists.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools import deb, packages, wheel

ROOT = Path(__file__).parents[1]
SUMS = "SHA256SUMS"


def release(target: Path, key: str | None) -> list[Path]:
    """Makes the files in the directory `target`, which must not have others, and the tag. Exits with what is wrong."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    tag = f"v{version}"
    _check(version, tag)
    key = key or _git("config", "--default", "", "user.signingKey")
    if not key:
        sys.exit("name the key that signs: --key KEY, or git config user.signingKey KEY")
    with tempfile.TemporaryDirectory(dir=_made(target.parent)) as scratch:
        made = Path(scratch) / "release"
        wheel.build(made)
        deb.build(made)
        (made / f"moorage-{version}.cdx.json").write_text(
            json.dumps(packages.sbom(), indent=1) + "\n", encoding="utf-8"
        )
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(made.iterdir())]
        (made / SUMS).write_text("".join(sums))
        signing = ["gpg", "--batch", "--yes", "--local-user", key, "--armor", "--detach-sign", made / SUMS]
        subprocess.run(signing, check=True, stdout=sys.stderr)
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)
    subprocess.run(["git", "tag", "--sign", "--local-user", key, "--message", f"Moorage {version}", tag], cwd=ROOT,
                   check=True, stdout=sys.stderr)  # fmt: skip
    return sorted(target.iterdir())


def _check(version: str, tag: str) -> None:
    if changed := _git("status", "--porcelain"):
        sys.exit(f"a release is made of a commit, but these files differ from it:\n{changed}")
    if not re.search(
        rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    ):
        sys.exit(f"CHANGELOG.md has no heading '## {version} (YYYY-MM-DD)': move the lines of 'Unreleased' there")
    if _git("tag", "--list", tag):
        sys.exit(f"the tag {tag} exists: set another version in pyproject.toml, or delete the tag if nobody has it")


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Makes a release of the present commit.")
    parser.add_argument("--key", help="the GnuPG key that signs; default: git's user.signingKey")
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT / "dist" / "release")
    asked = parser.parse_args()
    print(*release(asked.directory, asked.key), sep="\n")
