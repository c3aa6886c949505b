"""Writes the files that a page shows: blocks whose fence names a path, as in ```python maintenance/filter.py.

usage: python tests/pages/files.py PAGE DIRECTORY
"""

import re
import sys
from pathlib import Path


def files(page: Path) -> dict[str, str]:
    """{path: text}"""
    return dict(
        re.findall(r"^```\w+ (\S*/\S+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    )


if __name__ == "__main__":
    for name, text in files(Path(sys.argv[1])).items():
        path = Path(sys.argv[2]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
