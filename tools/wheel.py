"""Build the wheel of this checkout.

usage: .venv/bin/python tools/wheel.py [DIRECTORY]          into dist/ unless told otherwise; prints its path

It is built from a copy of the files that are, or would be, committed: what an earlier build left in build/ would
otherwise be packed again, also what has been deleted since. The build tool is one of the pinned packages, so nothing
is fetched.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What the build reads.
PARTS = ["pyproject.toml", "README.md", "src"]


def build(target: Path) -> Path:
    """The wheel, in the directory `target`. The build tool's own words on stderr where it fails."""
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
    """Paths of the files that the wheel is made of."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PARTS],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


if __name__ == "__main__":
    print(build(Path(*sys.argv[1:2]) if sys.argv[1:] else ROOT / "dist"))
