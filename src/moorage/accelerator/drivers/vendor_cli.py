"""Runs a vendor's program without a shell, only in the listed forms and only with checked values.

A form is a sequence of arguments. ``{bdf}``, ``{bus}``, ``{device}``, ``{function}`` and ``{segment}`` stand for a PCI
address and its parts, ``{file}`` for an existing file, and ``{output}`` for a file to be written. No other arguments
can be passed. A run has a time limit (`timeout_s`) and a limit on its output, and the program's children are killed
with it.
"""

import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.model.devices import pci_parts

#: More than any of these programs prints.
MAX_OUTPUT_BYTES = 1 << 20

_FILE = re.compile(r"/[A-Za-z0-9_./-]+\Z")
_LANGUAGE = {"LC_ALL": "C.UTF-8"}


class ToolMissing(DriverError):
    """The program is not installed in the configured directories."""

    code = "accelerator.tool_missing"


class ToolTimeout(DriverError):
    """The program exceeded its time limit."""

    code = "accelerator.tool_timeout"


class ToolFailed(DriverError):
    """The program's exit code was not 0."""

    code = "accelerator.tool_failed"


class ToolOutputInvalid(DriverError):
    """The program's output does not have the expected form."""

    code = "accelerator.tool_answer"


@dataclass(frozen=True, slots=True)
class VendorTool:
    """`path`: the directories to search, in the form of ``PATH``."""

    name: str
    forms: Mapping[str, Sequence[str]]
    path: str
    timeout_s: float

    def run(self, form: str, *, bdf: str = "", file: Path | None = None, output: Path | None = None) -> str:
        """Returns the program's output. Raises one of the errors above, or `Invalid` for a bad PCI address."""
        words = self._arguments(form, bdf, {"file": file, "output": output})
        program = shutil.which(self.name, path=self.path)
        if program is None:
            raise ToolMissing(
                f"{self.name} is not installed in {self.path or '(nowhere)'}; it comes with its vendor's runtime"
            )
        with subprocess.Popen(  # noqa: S603 - no shell; `_arguments` has checked the paths and the PCI address
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": self.path, **_LANGUAGE},
            start_new_session=True,
        ) as process:
            ends_at = time.monotonic() + self.timeout_s
            try:
                out, err = self._read_output(process, ends_at)
                self._await_end(process, ends_at)
            finally:
                _kill(process)
            code = process.wait()
        if code != 0:
            raise ToolFailed(f"{self.name} {' '.join(words)} ended with {code}: {_last_line(err or out)}")
        return out.decode(errors="replace")

    def _arguments(self, form: str, bdf: str, files: Mapping[str, Path | None]) -> list[str]:
        values: dict[str, str] = {}
        if bdf:
            parts = pci_parts(bdf)
            hexadecimal = {name: f"0x{parts[name]}" for name in ("bus", "device", "function")}
            values |= {"bdf": bdf, "segment": f"0x{parts['domain']}", **hexadecimal}
        for name, path in files.items():
            if path is None:
                continue
            if not _FILE.match(str(path)) or path.is_file() != (name == "file"):
                raise DriverError(f"{str(path)!r} cannot be passed to {self.name} as its {name}")
            values[name] = str(path)
        return [word.format(**values) for word in self.forms[form]]

    def _read_output(self, process: "subprocess.Popen[bytes]", ends_at: float) -> tuple[bytes, bytes]:
        """Read stdout and stderr until both are closed."""
        pipes = [pipe.fileno() for pipe in (process.stdout, process.stderr) if pipe is not None]
        found = {pipe: bytearray() for pipe in pipes}
        with selectors.DefaultSelector() as selector:
            for pipe in pipes:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                if not (ready := selector.select(max(ends_at - time.monotonic(), 0))):
                    raise self._timeout_error()
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 16)
                    if not chunk:
                        selector.unregister(key.fd)
                    found[key.fd] += chunk
                if sum(map(len, found.values())) > MAX_OUTPUT_BYTES:
                    raise ToolOutputInvalid(f"{self.name} printed more than {MAX_OUTPUT_BYTES} bytes and was killed")
        out, err = (bytes(found[pipe]) for pipe in pipes)
        return out, err

    def _await_end(self, process: "subprocess.Popen[bytes]", ends_at: float) -> None:
        """Waits for the exit, because a program may close its outputs and keep running."""
        descriptor = os.pidfd_open(process.pid)
        try:
            with selectors.DefaultSelector() as selector:  # select() takes no number above 1023
                selector.register(descriptor, selectors.EVENT_READ)
                if not selector.select(max(ends_at - time.monotonic(), 0)):
                    raise self._timeout_error()
        finally:
            os.close(descriptor)

    def _timeout_error(self) -> ToolTimeout:
        return ToolTimeout(f"{self.name} did not end within {self.timeout_s:g} s and was killed")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill the whole process group, because an ended program may have left children. Must run before `wait`: only
    until then is the process id certain not to be reused.
    """
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "no output")
