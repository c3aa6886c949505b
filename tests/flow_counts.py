"""Counts the functions and modules that run in a flow of ARCHITECTURE.md, and finds calls back up.

    with FlowTrace("compute/", "scheduler/", start="HostSelector.claim_hosts") as trace:
        builder.run_once()
    trace.functions      # {("compute/scheduling/pipeline.py", "HostSelector.claim_hosts"), ...}

Counted are the functions and methods of the given parts of ``src/moorage`` that run below the function `start`. Not counted: the code
inside of another function (comprehensions, lambdas), constructors, and the methods that dataclasses write.

A *call back up* is a call of a module that is on the stack already, below a frame of another counted module: the reader
of the flow must return to a file that he has left.
"""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import moorage

SOURCE = f"{Path(moorage.__file__).parent}/"

#: (file below src/moorage, qualified name)
Function = tuple[str, str]


class FlowTrace:
    """Traces all threads between entry and exit. `parts`: beginnings of file names below ``src/moorage``."""

    def __init__(self, *parts: str, start: str) -> None:
        self._parts = parts
        self._start = start
        self.functions: set[Function] = set()
        #: (caller, callee)
        self.calls_up: set[tuple[Function, Function]] = set()

    def __enter__(self) -> Self:
        threading.setprofile(self._observe)
        sys.setprofile(self._observe)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @property
    def modules(self) -> set[str]:
        return {file for file, _ in self.functions}

    def __str__(self) -> str:
        lines = [f"{len(self.functions)} functions in {len(self.modules)} modules"]
        for module in sorted(self.modules):
            names = sorted(name for file, name in self.functions if file == module)
            lines.append(f"  {module}: {', '.join(names)}")
        lines += [f"  up: {caller} -> {callee}" for caller, callee in sorted(self.calls_up)]
        return "\n".join(lines)

    def _observe(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or (callee := self._function(frame.f_code)) is None:
            return
        stack = [callee, *self._callers(frame)]
        if self._start not in [name for _, name in stack]:
            return
        self.functions.add(callee)
        caller = next(iter(stack[1:]), callee)
        if caller[0] != callee[0] and callee[0] in [file for file, _ in stack[1:]]:
            self.calls_up.add((caller, callee))

    def _callers(self, frame: FrameType) -> Iterator[Function]:
        """The counted functions on the stack below `frame`, from the innermost up to `start`."""
        caller = frame.f_back
        while caller is not None:
            function = self._function(caller.f_code)
            if function is not None:
                yield function
                if function[1] == self._start:
                    return
            caller = caller.f_back

    def _function(self, code: CodeType) -> Function | None:
        file, name = code.co_filename, code.co_qualname
        if "<" in name or name.rpartition(".")[2].startswith("__") or not file.startswith(SOURCE):
            return None
        file = file.removeprefix(SOURCE)
        return (file, name) if file.startswith(self._parts) else None
