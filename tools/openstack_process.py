"""One `openstack` process that runs many commands, which it reads from its standard input.

A command takes a second in a process of its own, most of it for imports, and a tenth of that here. In this mode the
client has no exit code per command: a command failed if it wrote to standard error, or ended the process.
"""

import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

#: An entry point of python-blazarclient 4.6.0 names a class that it does not have; the client says so at each start.
NOISE = "Could not load 'reservation_host_unset'"


class OpenStackProcess:
    def __init__(self, program: Path, environment: Mapping[str, str], directory: Path) -> None:
        """Starts `program` with the working directory `directory`, in which it also keeps the output."""
        self._files = [directory / "openstack.out", directory / "openstack.err"]
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self._process = subprocess.Popen(
                [program],
                env={**environment, "PYTHONUNBUFFERED": "1"},
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,  # Ctrl-C is for the tour, which closes this
            )
        self._read = [0, 0]
        self._count = 0

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def run(self, words: Sequence[str], timeout_s: float = 120) -> tuple[str, str]:
        """Runs ``openstack WORDS``; returns its standard output and standard error. Raises `TimeoutError`."""
        self._count += 1
        mark = f"--- end of command {self._count}"
        line = " ".join(_twice_quoted(word) for word in words)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f'{line}\n!echo "{mark}"\n')
            self._process.stdin.flush()
        except BrokenPipeError:
            self._process.wait()
        end = time.monotonic() + timeout_s
        while mark not in (out := self._new_output(0)) and not self.has_ended:
            if time.monotonic() > end:
                raise TimeoutError(f"openstack {line} did not end within {timeout_s:.0f} s")
            time.sleep(0.01)
        if self.has_ended:
            out = self._new_output(0)
        err = self._new_output(1)
        self._read = [file.stat().st_size for file in self._files]
        return out.partition(mark)[0].strip(), _without_noise(err)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _new_output(self, number: int) -> str:
        return self._files[number].read_bytes()[self._read[number] :].decode(errors="replace")


def _twice_quoted(word: str) -> str:
    """The word in a line, which the client takes apart twice. Raises `ValueError` for quotes."""
    if shlex.quote(word) == word:
        return word
    if "'" in word or '"' in word:
        raise ValueError(f"{word!r} has quotes, which the client would take for its own")
    return f"'\"{word}\"'"


def _without_noise(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if NOISE not in line).strip()
