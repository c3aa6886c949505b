"""Generates the tables of docs/reference/server-operations.md from compute's lifecycle and migration workflow.

usage: .venv/bin/python tools/operations_page.py
"""

from pathlib import Path

from moorage.compute.model import lifecycle, migration_workflow
from moorage.compute.model.lifecycle import Operation
from moorage.compute.model.migration_workflow import MigrationStep, MoveKind, StepName, Where
from moorage.compute.model.servers import VmState

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "server-operations.md"
BEGIN, END = "<!-- table: tools/operations_page.py -->\n", "<!-- end of the table -->\n"
HEAD = "| action | allowed in | answer | meanwhile | afterwards | accelerators | its host dies |\n|---|---|---|---|---|---|---|\n"
STEPS_BEGIN, STEPS_END = "<!-- steps: tools/operations_page.py -->\n", "<!-- end of the steps -->\n"
STEPS_HEAD = "| move | step | whose host | then | a failure | that host dies |\n|---|---|---|---|---|---|\n"
#: Kinds of moves that have the same steps.
KINDS = {
    "resize, migration": MoveKind.RESIZE, "live migration": MoveKind.LIVE, "evacuation": MoveKind.EVACUATION,
    "unshelve": MoveKind.UNSHELVE,
}  # fmt: skip


def table() -> str:
    return HEAD + "".join(row(operation) for operation in lifecycle.OPERATIONS)


def steps() -> str:
    rows = [
        step_row(name, step)
        for name, kind in KINDS.items()
        for step in migration_workflow.STEPS[kind].values()
        if step.where is not Where.HERE
    ]
    return STEPS_HEAD + "".join(rows)


def step_row(kind: str, step: MigrationStep) -> str:
    dies = "the server is on that host: it waits for the host, or is evacuated"
    if step.without_host is not None:
        dies = f"`{step.without_host}`"
    if step.name == StepName.REBUILD:
        dies += ", then another destination, unless the request names one"
    elif step.name in migration_workflow.REPEATED_STEPS and step.without_host is None:
        dies = "the step waits for the host; nothing else does"
    elif step.name == StepName.POST_LIVE:
        dies = "ERROR on that host: evacuate the server, or reboot it hard"
    elif step.name in migration_workflow.REVERT_STEPS:
        dies = "ERROR on that host: evacuate the server, or the step continues when the host is back"
    then, otherwise = (f"`{name}`" if name else "" for name in (step.then, step.otherwise))
    cells = kind, f"`{step.name}`", step.where.value, then or "the end", otherwise or "ERROR", dies
    return f"| {' | '.join(cells)} |\n"


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
        operation.host_dies.value,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def filled(text: str) -> str:
    for begin, end, rows in ((BEGIN, END, table()), (STEPS_BEGIN, STEPS_END, steps())):
        before, _, rest = text.partition(begin)
        text = before + begin + rows + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
