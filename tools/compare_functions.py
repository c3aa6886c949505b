"""Compares all functions, classes and constants of two revisions, under the renames of tools/renames/.

    python tools/compare_functions.py BEFORE [AFTER]
    python tools/compare_functions.py BEFORE [AFTER] --diff NAME

A change that only moves and renames things leaves every normalised syntax tree as it was. Normalised means: without
docstrings, annotations and imports; local variables numbered in the order of their first use; messages (texts with a
blank, except SQL) blanked, so that a rewritten message is no difference. Two functions, two constants (assignments in
modules and classes) or two classes (bases, decorators and fields) are equal if their trees are equal, and each name in
one is the same in the other, or was renamed to it by the tables. Loggers, ``__all__`` and functions without behaviour
(only a docstring, ``...`` or ``raise NotImplementedError``) are not compared. A name inside a string, as for `getattr`,
is not detected.

The tables have one entry a line. A name is ``module:Class.name``; only its last part counts in a rename:

    OLD NEW             a rename: wherever BEFORE has OLD, AFTER may have NEW
    word OLD NEW        a rename of a string constant without a blank (a label, a template's variable)
    constant OLD NEW    a string constant OLD that the program writes as the constant NEW (``Class.NAME``) now
    merged OLD NEW      modules; for readers only
    inlined OLD         a function or class of BEFORE whose statements are elsewhere now; lines above the entry say where
    removed OLD         a function or class of BEFORE that was deleted with its behaviour
    added NEW           a function or class of AFTER without a predecessor; lines above the entry say why
    changed OLD NEW     a function or class that differs on purpose; lines above the entry say why

The last four take whole names, or patterns (``module:*``), and explain a difference. Prints the differences that the
tables do not explain, and the explanations that no difference needs. The exit status is 1 if there are any.
"""

import argparse
import ast
import collections
import difflib
import fnmatch
import functools
import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

RENAMES = Path(__file__).parent / "renames"
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|DROP|ALTER|PRAGMA|SET|SHOW|BEGIN|VALUES|LOCK)\s")
MARKED = re.compile(r"'=(\w+)'")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Body:
    """One function, class or constant of one revision."""

    where: str  #: ``module:Class.name``
    tree: str  #: its normalised syntax tree, with names marked by "="

    @functools.cached_property
    def names(self) -> list[str]:
        return MARKED.findall(self.tree)

    def lines(self) -> list[str]:
        """The lines in a form for people."""
        tree = eval(MARKED.sub(r"'\1'", self.tree), vars(ast))
        return ast.unparse(ast.fix_missing_locations(tree)).splitlines()


@dataclass(frozen=True)
class Texts:
    """The entries of the tables about string constants."""

    words: set[str]  #: string constants of which some were renamed
    constants: dict[str, str]  #: {``Class.NAME`` of AFTER: its value, as BEFORE writes it}


class Tables:
    """The entries of tools/renames/."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._parents: dict[str, str] = {}
        self._next: dict[str, set[str]] = {}
        self.gone: set[str] = set()  #: names and patterns
        self.added: set[str] = set()
        self.changed: set[tuple[str, str]] = set()
        self.texts = Texts(set(), {})
        for line in lines:
            self._read(line.partition("#")[0].split())

    def _read(self, words: list[str]) -> None:
        match words:
            case [] | ["merged", _, _]:
                pass
            case ["inlined" | "removed", old]:
                self.gone.add(old)
            case ["added", new]:
                self.added.add(new)
            case ["changed", old, new]:
                self.changed.add((old, new))
            case ["word", old, new]:
                self.texts.words.update((old, new))
                self._join(old, new)
            case ["constant", old, new]:
                self.texts.constants[new] = old
            case [old, new]:
                self._join(*(re.split(r"[.:]", word)[-1] for word in (old, new)))
            case _:
                raise SystemExit(f"not an entry: {' '.join(words)}")

    def _join(self, old: str, new: str) -> None:
        if old != new:
            self._next.setdefault(old, set()).add(new)
            self._parents[self._one(old)] = self._one(new)

    def _one(self, name: str) -> str:
        while (parent := self._parents.get(name, name)) != name:
            name = parent
        return name

    def shape(self, tree: str) -> str:
        """The tree with one representative for all names that the renames connect: equal bodies have equal shapes."""
        return MARKED.sub(lambda found: self._one(found[1]), tree)

    def are_equal(self, before: Body, after: Body) -> bool:
        """Whether the names of `before` were renamed to those of `after`. The shapes of both must be equal."""
        return all(self._may_become(old, new) for old, new in zip(before.names, after.names, strict=True))

    @functools.cache  # noqa: B019 - the cache keeps its object alive, and there is one for the whole run
    def _may_become(self, old: str, new: str) -> bool:
        seen, ahead = {old}, [old]
        while ahead and new not in seen:
            found = self._next.get(ahead.pop(), set()) - seen
            seen |= found
            ahead += found
        return new in seen


class Normaliser(ast.NodeTransformer):
    """Normalises one outermost function, the head of one class, or the assignment of one constant."""

    def __init__(self, outermost: Function | ast.ClassDef | ast.Assign | ast.AnnAssign, texts: Texts) -> None:
        self._texts = texts
        self._locals: dict[str, str] = {}
        # The name that is assigned is not a local variable.
        self._bound = set(
            bound_names(outermost if isinstance(outermost, Function) else getattr(outermost, "value", None))
        )

    def _name(self, name: str) -> str:
        return self._locals.setdefault(name, f"local{len(self._locals)}") if name in self._bound else f"={name}"

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._name(node.id), ast.Load())

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self._name(node.arg))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and (text := self._texts.constants.get(f"{node.value.id}.{node.attr}")):
            return ast.Constant(text)
        # `module.name` and `name` are the same after a merge.
        value = self.visit(node.value)
        is_module = isinstance(node.value, ast.Name) and node.value.id not in self._bound and node.value.id.islower()
        return ast.Name(f"={node.attr}", ast.Load()) if is_module else ast.Attribute(value, f"={node.attr}", ast.Load())

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        return ast.keyword(node.arg and f"={node.arg}", self.visit(node.value))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        text = node.value.decode("latin") if isinstance(node.value, bytes) else node.value
        if not isinstance(text, str):
            return node
        if is_message(text):
            return ast.Constant("text")
        return ast.Constant(f"={text}" if text in self._texts.words else node.value)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        name = node.name and self._name(node.name)
        return ast.ExceptHandler(node.type and self.visit(node.type), name, [self.visit(one) for one in node.body])

    def visit_MatchAs(self, node: ast.MatchAs) -> ast.AST:
        return ast.MatchAs(node.pattern and self.visit(node.pattern), node.name and self._name(node.name))

    def visit_MatchStar(self, node: ast.MatchStar) -> ast.AST:
        return ast.MatchStar(node.name and self._name(node.name))

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        attributes = [f"={one}" for one in node.kwd_attrs]
        patterns = [[self.visit(one) for one in some] for some in (node.patterns, node.kwd_patterns)]
        return ast.MatchClass(self.visit(node.cls), patterns[0], attributes, patterns[1])

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        text = "".join(part.value for part in node.values if isinstance(part, ast.Constant))
        kept = (
            node.values if not is_message(text) else [one for one in node.values if not isinstance(one, ast.Constant)]
        )
        return ast.JoinedStr([self.visit(part) for part in kept])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return ast.Assign([self.visit(node.target)], self.visit(node.value), lineno=0) if node.value else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        arguments = ast.arguments(
            posonlyargs=[self.visit(one) for one in node.args.posonlyargs],
            args=[self.visit(one) for one in node.args.args],
            vararg=node.args.vararg and self.visit(node.args.vararg),
            kwonlyargs=[self.visit(one) for one in node.args.kwonlyargs],
            kw_defaults=[one and self.visit(one) for one in node.args.kw_defaults],
            kwarg=node.args.kwarg and self.visit(node.args.kwarg),
            defaults=[self.visit(one) for one in node.args.defaults],
        )
        kept = [done for one in statements(node) if (done := self.visit(one)) is not None]
        decorators = [self.visit(one) for one in node.decorator_list]
        return ast.FunctionDef("function", arguments, kept or [ast.Pass()], decorators, None)

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None


def is_message(text: str) -> bool:
    return " " in text and not SQL.match(text)


def statements(function: Function) -> list[ast.stmt]:
    """The statements of a function, without docstrings and ``...``."""
    return [one for one in function.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]


def has_behaviour(function: Function) -> bool:
    kept = statements(function)
    return bool(kept) and not (len(kept) == 1 and ast.unparse(kept[0]).startswith("raise NotImplementedError"))


def bound_names(outermost: ast.AST | None) -> Iterator[str]:
    """Names that a function or a value binds, including functions and comprehensions inside it."""
    for node in ast.walk(outermost) if outermost else ():
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar | Function) and node is not outermost:
            yield from [node.name] if node.name else []


def bodies(revision: str, texts: Texts) -> Iterator[Body]:
    packed = subprocess.run(["git", "archive", revision, "src"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        for member in files:
            if member.name.endswith(".py") and (file := files.extractfile(member)):
                module = member.name.removeprefix("src/").removesuffix(".py").replace("/", ".")
                yield from bodies_in(module.removesuffix(".__init__") + ":", ast.parse(file.read()), texts)


def bodies_in(prefix: str, tree: ast.AST, texts: Texts) -> Iterator[Body]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.ClassDef():
                yield Body(prefix + node.name, ast.dump(Normaliser(node, texts).visit(head(node))))
                yield from bodies_in(f"{prefix}{node.name}.", node, texts)
            case ast.FunctionDef():
                if has_behaviour(node):
                    yield Body(prefix + node.name, ast.dump(Normaliser(node, texts).visit(node)))
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if node.value:
                is_value = isinstance(node.value, ast.Constant) and node.value.value == texts.constants.get(
                    f"{prefix.rpartition(':')[2]}{name}"
                )
                if name not in {"__all__", "log"} and not is_value:
                    yield Body(prefix + name, ast.dump(Normaliser(node, texts).visit(node)))
            case _:
                yield from bodies_in(prefix, node, texts)


def head(node: ast.ClassDef) -> ast.stmt:
    """A class without its methods: its name, bases, decorators and fields, in their order."""
    fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
    return ast.Expr(ast.Call(ast.Name(node.name), [*node.bases, *node.decorator_list, *fields], node.keywords))


def unmatched(tables: Tables, before: Iterable[Body], after: Iterable[Body]) -> tuple[list[Body], list[Body]]:
    """The functions of both sides that have no equal on the other side. Each function is the equal of at most one
    other.
    """
    by_shape: dict[str, tuple[list[Body], list[Body]]] = collections.defaultdict(lambda: ([], []))
    for side, found in enumerate((before, after)):
        for body in found:
            by_shape[tables.shape(body.tree)][side].append(body)
    gone, new = [], []
    for olds, candidates in by_shape.values():
        taken: dict[int, Body] = {}
        # A later one may be left without an equal.
        candidates.sort(key=lambda body: bool(named(body.where, tables.added)))
        for old in sorted(olds, key=lambda body: bool(named(body.where, tables.gone))):
            place(old, candidates, taken, tables, set())
        gone += [old for old in olds if old not in taken.values()]
        new += [body for at, body in enumerate(candidates) if at not in taken]
    return gone, new


def named(where: str, patterns: Iterable[str]) -> set[str]:
    """The patterns that match `where`."""
    return {pattern for pattern in patterns if fnmatch.fnmatchcase(where, pattern)}


def place(old: Body, candidates: list[Body], taken: dict[int, Body], tables: Tables, tried: set[int]) -> bool:
    """Finds a candidate for `old`; moves others to another candidate if necessary (bipartite matching)."""
    for at, candidate in enumerate(candidates):
        if at not in tried and tables.are_equal(old, candidate):
            tried.add(at)
            if at not in taken or place(taken[at], candidates, taken, tables, tried):
                taken[at] = old
                return True
    return False


def print_difference(name: str, *sides: list[Body]) -> None:
    wanted = set(name.split(","))
    texts = [
        [line for body in side if re.split("[.:]", body.where)[-1] in wanted for line in (body.where, *body.lines())]
        for side in sides
    ]
    print("\n".join(difflib.unified_diff(*texts, "BEFORE", "AFTER", n=100, lineterm="")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after", nargs="?", default="HEAD")
    parser.add_argument("--diff", metavar="NAME[,NAME]", help="print how functions of these (last) names differ")
    given = parser.parse_args()
    tables = Tables(line for path in sorted(RENAMES.glob("*.txt")) for line in path.read_text().splitlines())
    before, after = (list(bodies(revision, tables.texts)) for revision in (given.before, given.after))
    if given.diff:
        print_difference(given.diff, before, after)
        return
    gone, new = unmatched(tables, before, after)
    old_names, new_names = {body.where for body in gone}, {body.where for body in new}
    changed = {(old, now) for old, now in tables.changed if old in old_names and now in new_names}
    unexplained = {
        "in BEFORE only": {one for one in old_names if not named(one, tables.gone)} - {old for old, _ in changed},
        "in AFTER only": {one for one in new_names if not named(one, tables.added)} - {now for _, now in changed},
        "explained, but equal or absent": {f"{old} {now}" for old, now in tables.changed - changed}
        | {one for one in tables.gone if not fnmatch.filter(old_names, one)}
        | {one for one in tables.added if not fnmatch.filter(new_names, one)},
    }
    for title, found in unexplained.items():
        print(f"{title}: {len(found)}")
        for where in sorted(found):
            print(f"    {where}")
    print(
        f"{len(before)} functions, classes and constants before, {len(after)} after: {len(before) - len(gone)} equal, "
        f"{len(changed)} changed, {len(gone) - len(changed)} inlined or removed, {len(new) - len(changed)} added"
    )
    sys.exit(any(unexplained.values()))


if __name__ == "__main__":
    main()
