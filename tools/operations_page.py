"""Write the table of docs/guides/server-operations.md from `moorage.compute.lifecycle`.

usage: .venv/bin/python tools/operations_page.py
"""

from pathlib import Path

from moorage.compute import lifecycle
from moorage.compute.lifecycle import Operation
from moorage.compute.model import VmState

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "server-operations.md"
BEGIN, END = "<!-- table: tools/operations_page.py -->\n", "<!-- end of the table -->\n"
HEAD = "| action | allowed in | answer | meanwhile | afterwards | accelerators |\n|---|---|---|---|---|---|\n"


def table() -> str:
    return HEAD + "".join(row(operation) for operation in lifecycle.OPERATIONS)


def row(operation: Operation) -> str:
    allowed = [lifecycle.status(state, None) for state in VmState if state in operation.allowed]
    is_any = operation.allowed >= frozenset(VmState) - {VmState.DELETED}
    after = lifecycle.status(operation.ends, None)
    stays = [lifecycle.status(state, None) for state in VmState if state in operation.stays & operation.allowed]
    if set(stays) >= set(allowed):
        after = "unchanged"
    elif stays:
        after += f"; {', '.join(stays)} stays"
    if operation.fails is not None:
        after += f" (a failure: {lifecycle.status(operation.fails, None)})"
    cells = (
        f"`{operation.key}`", "any" if is_any else ", ".join(allowed), str(operation.code),
        operation.task.value if operation.task else "none", after, operation.accelerators.value,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def filled(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
