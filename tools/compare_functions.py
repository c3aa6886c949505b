"""Compare the bodies of all functions of two revisions, under the renames of tools/renames/.

    python tools/compare_functions.py BEFORE [AFTER]

A change that only moves and renames things leaves every function's normalised syntax tree as it was. Normalised:
without docstrings, annotations and imports; local variables numbered in the order of their first use; other names
replaced by one representative of all names that tools/renames/ connects; texts (string constants with a blank) blanked,
so that a rewritten message is no difference. Printed: the functions of BEFORE that have no equal in AFTER, and the
reverse. A function that was inlined or merged is listed unless tools/renames/ names it (``inlined MODULE:NAME``).
"""

import argparse
import ast
import collections
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RENAMES = Path(__file__).parent / "renames"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Body:
    """One function of one revision; `where` is ``path:name`` for people."""

    where: str
    name: str  #: the representative of its last name
    tree: str  #: its normalised syntax tree


class Names:
    """Names that mean the same thing before and after: a union of sets, by representative."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self.inlined: set[str] = set()
        for path in sorted(RENAMES.glob("*.txt")):
            for line in path.read_text().splitlines():
                self._read(line.partition("#")[0].split())

    def _read(self, words: list[str]) -> None:
        if not words:
            return
        if words[0] in {"inlined", "merged"}:
            self.inlined.add(re.split(r"[.:]", words[1])[-1])
        elif len(words) == 2:
            old, new = (re.split(r"[.:]", word)[-1] for word in words)
            self._parents[self.one(old)] = self.one(new)

    def one(self, name: str) -> str:
        while (parent := self._parents.get(name, name)) != name:
            name = parent
        return name


class Normaliser(ast.NodeTransformer):
    """Of one outermost function."""

    def __init__(self, names: Names, function: Function) -> None:
        self._names = names
        self._locals: dict[str, str] = {}
        self._bound = set(bound_names(function))

    def _name(self, name: str) -> str:
        if name in self._bound:
            return self._locals.setdefault(name, f"local{len(self._locals)}")
        return self._names.one(name)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._name(node.id), ast.Load())

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self._name(node.arg))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        # `module.name` and `name` are the same after a merge.
        attribute = ast.Attribute(self.visit(node.value), self._names.one(node.attr), ast.Load())
        is_module = isinstance(node.value, ast.Name) and node.value.id not in self._bound and node.value.id.islower()
        return ast.Name(attribute.attr, ast.Load()) if is_module else attribute

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        return ast.keyword(node.arg and self._names.one(node.arg), self.visit(node.value))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("text") if isinstance(node.value, str) and " " in node.value else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.JoinedStr([self.visit(part) for part in node.values if isinstance(part, ast.FormattedValue)])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return ast.Assign([self.visit(node.target)], self.visit(node.value), lineno=0) if node.value else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        arguments = ast.arguments(
            posonlyargs=[self.visit(one) for one in node.args.posonlyargs],
            args=[self.visit(one) for one in node.args.args],
            vararg=node.args.vararg and self.visit(node.args.vararg),
            kwonlyargs=[self.visit(one) for one in node.args.kwonlyargs],
            kw_defaults=[one and self.visit(one) for one in node.args.kw_defaults],
            kwarg=node.args.kwarg and self.visit(node.args.kwarg),
            defaults=[self.visit(one) for one in node.args.defaults],
        )
        body = [one for one in body if not is_empty(one)]
        kept = [done for one in body if (done := self.visit(one)) is not None]
        decorators = [self.visit(one) for one in node.decorator_list]
        return ast.FunctionDef("function", arguments, kept or [ast.Pass()], decorators, None)

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None


def is_empty(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def bound_names(function: Function) -> Iterator[str]:
    """Names that the function, or one inside it, binds."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def bodies(revision: str, names: Names) -> Iterator[Body]:
    for path in git("ls-tree", "-r", "--name-only", revision, "src").splitlines():
        if path.endswith(".py") and "/migrations/" not in path:
            yield from functions(path, ast.parse(git("show", f"{revision}:{path}")), names)


def functions(path: str, tree: ast.AST, names: Names, prefix: str = "") -> Iterator[Body]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(path, node, names, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            normal = Normaliser(names, node).visit(node)
            yield Body(f"{path}:{prefix}{node.name}", names.one(node.name), ast.dump(ast.fix_missing_locations(normal)))
        else:
            yield from functions(path, node, names, prefix)


def git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after", nargs="?", default="HEAD")
    parser.add_argument("--diff", metavar="NAME", help="print the two normalised trees of functions of this name")
    given = parser.parse_args()
    names = Names()
    before, after = list(bodies(given.before, names)), list(bodies(given.after, names))
    if given.diff:
        for body in (*before, *after):
            if body.where.endswith((f":{given.diff}", f".{given.diff}")):
                print(body.where, ast.unparse(eval(body.tree, vars(ast))), sep="\n")
        return
    left, right = (collections.Counter(body.tree for body in side) for side in (before, after))
    gone = [body for body in before if (left - right)[body.tree] and body.name not in names.inlined]
    new = [body for body in after if (right - left)[body.tree]]
    changed = {body.name for body in gone} & {body.name for body in new}
    for title, found in (
        ("changed", [body for body in gone if body.name in changed]),
        ("in BEFORE only", [body for body in gone if body.name not in changed]),
        ("in AFTER only", [body for body in new if body.name not in changed]),
    ):
        print(f"{title}: {len(found)}")
        for body in found:
            print(f"    {body.where}")
    print(f"{len(before)} functions before, {len(after)} after; {sum((left & right).values())} equal")


if __name__ == "__main__":
    main()
