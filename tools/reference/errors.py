"""Generates docs/reference/errors.md: every stable error code, found by parsing the source.

A code belongs to a class (``code = "..."`` in the class), or to one place (``Conflict(..., code="...")``, also by the
name of a constant or of a local variable).
"""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from moorage.core import errors
from moorage.wire.errors import status_of
from tools.reference.tables import code, heading, table

SOURCE = Path(__file__).parents[2] / "src"
WORDS = """
Every error has a stable code; its message may change. Programs find codes in Placement's bodies (`errors[].code`, from
microversion 1.23 on; codes of other namespaces appear as `placement.undefined_code`, as in the peer), in the answers of a host
agent's sockets, in an agent's report of a failed job, and on the exceptions of os_acc. The bodies of the other services have
no place for a code; use the status. If several errors share a code, the table shows the message of the first one. … stands
for a name or a number. `-` means that the error is never answered over HTTP.
"""
_CODE = re.compile(r"[a-z_]+\.[a-z_]+")
#: Codes that are assigned in neither of the two ways: {code: (status, meaning)}.
BESIDES = {
    "agent.failed": (
        "-",
        "A job ended with an unexpected exception; the report has a number, and the host's log has the exception.",
    ),
    "compute.host_down": ("-", "The host of a job is dead, so the job is not done."),
    "jobs.attempts": ("-", "The last attempt of a job failed."),
    "placement.undefined_code": (
        "any",
        "The code in Placement's bodies for errors outside `placement.`; use the status.",
    ),
    "moorage.bug": ("500", "Unexpected error; the log of the service says more under the id of the request."),
    "moorage.schema": ("400", "The body is not what the schema of the route allows; the message says where."),
}


@dataclass
class Known:
    """A code with its classes and the message of one of them."""

    classes: set[str] = field(default_factory=set)
    says: list[str] = field(default_factory=list)


def page() -> str:
    return heading("Error codes", WORDS) + table(["code", "status", "what"], rows(collected()))


def rows(known: dict[str, Known]) -> Iterator[list[str]]:
    found = {
        name: (", ".join(statuses_of(one)) or "-", next(filter(None, one.says), "")) for name, one in known.items()
    }
    for name, (status, says) in sorted((found | BESIDES).items()):
        yield [code(name), status, says]


def statuses_of(one: Known) -> list[str]:
    return sorted({str(status) for kind in one.classes if (status := status_by_name(kind)) is not None})


def status_by_name(kind: str) -> int | None:
    """The status of the class or its nearest ancestor. The source is parsed, because some modules need optional
    packages.
    """
    for _ in range(10):
        known = getattr(errors, kind, None)
        if known is not None:
            return status_of(known.__new__(known))
        kind = bases().get(kind, "")
    return None


@functools.cache
def trees() -> list[ast.Module]:
    """{path: syntax tree} of the modules that mention errors."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py")))
    return [ast.parse(text) for text in texts if re.search(r"\bcode\b|_CODE\b|errors import|errors as", text)]


@functools.cache
def bases() -> dict[str, str]:
    """{class: its first base class}"""
    classes = (node for tree in trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.bases)
    return {node.name: getattr(node.bases[0], "id", getattr(node.bases[0], "attr", "")) for node in classes}


@functools.cache
def collected() -> dict[str, Known]:
    """{code: entry} for the whole source, except the codes in `BESIDES`."""
    constants = {name: text for tree in trees() for name, text in constants_of(tree)}
    found: dict[str, Known] = {}
    for tree in trees():
        for name, kind, says in [*of_classes(tree), *of_places(tree, constants)]:
            one = found.setdefault(name, Known())
            one.classes.add(kind)
            one.says.append(says)
    return found


def constants_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """[(name, text)] of a module's constants: codes and messages."""
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        ):
            yield node.targets[0].id, str(node.value.value)


def of_classes(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """[(code, class, first sentence of its docstring)]"""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for part in node.body:
            target = part.targets[0] if isinstance(part, ast.Assign) else getattr(part, "target", None)
            if isinstance(target, ast.Name) and target.id == "code":
                for name in strings(part.value, {}):
                    yield name, node.name, sentence(ast.get_docstring(node) or "")


def of_places(tree: ast.Module, constants: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """[(code, class, message with … for its values)] where an error is raised with its own code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            kind = getattr(node.func, "id", getattr(node.func, "attr", ""))
            for keyword in node.keywords:
                if keyword.arg == "code":
                    for name in strings(keyword.value, constants):
                        yield name, kind, message(node.args[0], constants) if node.args else ""
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "code":
            # A local variable; its error class is not looked up.
            yield from ((name, "", "") for name in strings(node.value, constants))
        elif isinstance(node, ast.Dict):
            # The report of a failed job by an agent or worker: {"error": ..., "code": ...}.
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "code":
                    yield from ((name, "", "") for name in strings(value, constants))


def strings(node: ast.expr | None, constants: dict[str, str]) -> Iterator[str]:
    """The codes that the expression can have."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _CODE.fullmatch(node.value):
        yield node.value
    elif isinstance(node, ast.Name | ast.Attribute):
        text = constants.get(node.id if isinstance(node, ast.Name) else node.attr, "")
        if _CODE.fullmatch(text):
            yield text
    elif isinstance(node, ast.IfExp):
        yield from strings(node.body, constants)
        yield from strings(node.orelse, constants)


def message(node: ast.expr, constants: dict[str, str]) -> str:
    """For example ``Provider … is not there``; empty for a message built elsewhere."""
    if isinstance(node, ast.IfExp):
        return message(node.body, constants)
    if isinstance(node, ast.Name):
        return escaped(constants.get(node.id, ""))
    if isinstance(node, ast.Constant):
        return escaped(str(node.value))
    if isinstance(node, ast.JoinedStr):
        return escaped("".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values))
    return ""


def sentence(docstring: str) -> str:
    """The first sentence, on one line."""
    first = " ".join(docstring.split("\n\n", maxsplit=1)[0].split())
    return re.split(r"(?<=\.) ", first)[0].replace("``", "`")


def escaped(text: str) -> str:
    return re.sub(r"([<*_\[\]])", r"\\\1", " ".join(text.split()))
