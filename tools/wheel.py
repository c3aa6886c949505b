"""Builds the wheel of this checkout.

usage: .venv/bin/python tools/wheel.py [DIRECTORY]          default: dist/; prints the path of the wheel

It is built from a copy of the files that are committed or would be. Otherwise the wheel would also contain files that
an earlier build left in build/, even deleted ones. The build tool is one of the pinned packages, so nothing is fetched.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Files that the build reads.
PARTS = ["pyproject.toml", "README.md", "LICENSE", "packaging", "src"]


def build(target: Path) -> Path:
    """Builds the wheel in the directory `target`. If it fails, the build tool's output is on standard error."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "checkout"
        for name in sources():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        made = Path(scratch) / "made"
        command = [sys.executable, "-m", "pip", "wheel", "-qq", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*command, "--no-build-isolation", "--wheel-dir", made, copy], check=True)
        (wheel,) = made.iterdir()
        return Path(shutil.copy2(wheel, target))


def sources() -> list[str]:
    """Paths of the files for the wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PARTS],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


if __name__ == "__main__":
    print(build(Path(*sys.argv[1:2]) if sys.argv[1:] else ROOT / "dist"))
