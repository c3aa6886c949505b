"""The commands of a page that a test runs in place of an operator."""

from pathlib import Path

from tests.pages.blocks import blocks


def shown_commands(page: Path, test: str) -> list[str]:
    """Those of the blocks whose mark "run by" names `test`, in their order."""
    return [
        step.command
        for block in blocks(page)
        if any(name.endswith(f"::{test}") for name in block.marks.get("run by", "").split())
        for step in block.steps
    ]
