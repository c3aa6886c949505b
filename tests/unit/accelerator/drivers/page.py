"""The driver and the bench in docs/guides/writing-a-driver.md, loaded from the page."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[4] / "docs" / "guides" / "writing-a-driver.md"


def blocks() -> dict[str, str]:
    """``{"driver": ..., "bench": ...}``"""
    found = re.findall(r"^```python (\w+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return dict(found)


def timecard(directory, clock):
    names: dict = {}
    for name in ("driver", "bench"):
        exec(compile(blocks()[name], f"{PAGE.name}: {name}", "exec"), names)
    return names["timecard"](directory, clock)
