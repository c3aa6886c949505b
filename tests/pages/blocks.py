"""The commands in a page, and the directives in its source about running them.

A block of commands is fenced as ``console`` (lines that begin with ``$``, and their output) or ``sh`` (a script). A
page whose source has

    <!-- page: run on a plane -->             or: on a plane of 3 hosts; or: without a plane

is run: all its blocks in order, in one shell (`runner`). A comment above a block applies to that block:

    <!-- not run: WHY -->                     it cannot run here; WHY is for readers of the source, and is counted
    <!-- run by: tests/a.py::test_b -->       that test runs it
    <!-- refused -->                          the last command must fail
    <!-- in another terminal -->              it is started, and continues while the others run
    <!-- until it is so -->                   each command is repeated until it succeeds and prints the shown output
    <!-- beforehand: COMMANDS -->             run before it, not shown: sets up what a reader has and a test lacks

In a page that is not run, every block needs one of the first two (`tests/docs/test_commands_in_pages.py`).
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(
    r"(?P<marks>(?:^[ ]*<!--(?:(?!-->)[\s\S])*-->[ ]*\n)*)(?:^[ ]*\n)?^(?P<indent>[ ]*)```(?P<kind>console|sh)[ ]*\n(?P<text>[\s\S]*?)^[ ]*```[ ]*$",
    re.MULTILINE,
)
_MARK = re.compile(r"<!--\s*([\w ]+?)\s*(?::\s*([\s\S]*?))?\s*-->")
_PAGE = re.compile(r"^<!-- page: run (?:without a plane|on a plane(?: of (\d+) hosts)?) -->$", re.MULTILINE)
MARKS = {"not run", "run by", "refused", "in another terminal", "until it is so", "beforehand"}


@dataclass(frozen=True)
class Step:
    """One command with its continuation lines, and its output in the page ("" if the page shows none)."""

    command: str
    output: str


@dataclass(frozen=True)
class Block:
    page: Path
    line: int  #: line of the opening fence
    steps: tuple[Step, ...]
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """All pages for people."""
    tops = [*ROOT.glob("*.md"), *ROOT.glob("requirements/*.md")]
    return sorted(
        [*tops, *(page for top in ("docs", "tests", "bench", "tools") for page in (ROOT / top).rglob("*.md"))]
    )


def hosts_of(page: Path) -> int | None:
    """The number of hosts of the page's plane; 0 if the page is run without a plane, None if it is not run."""
    found = _PAGE.search(page.read_text(encoding="utf-8"))
    if found is None:
        return None
    return 0 if "without" in found[0] else int(found[1] or 1)


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        lines = [line.removeprefix(fence["indent"]) for line in fence["text"].splitlines()]
        steps = tuple(_steps(lines)) if fence["kind"] == "console" else (Step("\n".join(lines), ""),)
        marks = {name: value or "" for name, value in _MARK.findall(fence["marks"])}
        unknown = set(marks) - MARKS - {"page"}
        assert not unknown, f"{page}: {unknown} is no mark of a block; there are {sorted(MARKS)}"
        found.append(Block(page, text.count("\n", 0, fence.start("indent")) + 1, steps, marks))
    return found


def _steps(lines: list[str]) -> list[Step]:
    """A command continues after a line that ends with a backslash, and on lines that begin with ``>``."""
    found: list[Step] = []
    command: list[str] = []
    output: list[str] = []
    for line in lines:
        if line.startswith("$ "):
            if command:
                found.append(Step("\n".join(command), "\n".join(output).rstrip()))
            command, output = [line[2:]], []
        elif not output and command and (command[-1].endswith("\\") or line.startswith("> ")):
            command.append(line.removeprefix("> "))
        else:
            output.append(line)
    return [*found, Step("\n".join(command), "\n".join(output).rstrip())] if command else found
