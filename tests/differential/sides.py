"""Upstream Placement and ours behind one interface: each answers a request and can be emptied."""

import json
import subprocess
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.wire.transports import InProcessTransport
from tests.conformance import reset
from tests.conformance.conform import ROOT, SUITE_PYTHON, environment
from tests.conformance.variants import VARIANTS
from tests.plane import InProcessPlane


@dataclass(frozen=True)
class Asked:
    """`version` None: no version header. `body` is JSON; None: no body."""

    method: str
    target: str
    version: str | None = "1.39"
    body: object = None

    @property
    def headers(self) -> dict[str, str]:
        headers = {"x-auth-token": "admin", "accept": "application/json"}
        if self.version is not None:
            headers["openstack-api-version"] = f"placement {self.version}"
        if self.body is not None:
            headers["content-type"] = "application/json"
        return headers

    @property
    def text(self) -> str | None:
        return None if self.body is None else json.dumps(self.body)


@dataclass(frozen=True)
class Answered:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""

    @property
    def document(self) -> dict:
        return json.loads(self.body)


class Side(Protocol):
    def ask(self, asked: Asked) -> Answered: ...

    def empty(self) -> None: ...


class Upstream(AbstractContextManager):
    """Upstream on a SQLite file in `directory`, or on the empty database at `database_url`."""

    def __init__(self, directory: Path, database_url: str = "") -> None:
        if not SUITE_PYTHON.exists():
            raise RuntimeError("upstream Placement is not installed; make .venv-conformance/.done")
        command = [str(SUITE_PYTHON), "-W", "ignore", "-m", "tests.differential.upstream", str(directory), database_url]
        self._log = (directory / "upstream.log").open("w+")
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, asked: Asked) -> Answered:
        sent = {"method": asked.method, "target": asked.target, "headers": asked.headers, "body": asked.text}
        answered: dict = self._converse(sent)
        return Answered(**answered)

    def empty(self) -> None:
        self._converse("ghosts")
        reset.empty(partial(_admin, self))

    def remove_ghosts(self) -> list[str]:
        """Removes consumers without allocations (docs/wire/differences.md); returns their uuids."""
        return self._converse("ghosts")

    def _converse(self, sent: object):
        self._process.stdin.write(json.dumps(sent) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"upstream Placement is gone:\n{self._log.read()[-3000:]}")
        return json.loads(line)

    def __exit__(self, *_error: object) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()


class Ours(AbstractContextManager):
    """Our service in this process, on a SQLite file in `directory`, or on the empty database at `database_url`."""

    def __init__(self, directory: Path, database_url: str = "") -> None:
        self._plane = InProcessPlane(
            directory,
            "placement",
            clock=SystemClock(),
            ids=RandomIds(),
            placement={"policy": VARIANTS["default"].policy},
            database={"placement": database_url},
        )
        self.engine = self._plane.engine("placement")
        self.service = self._plane.service("placement")
        self._transport = InProcessTransport(self._plane.alone("placement"), "http://placement.example")

    def empty(self) -> None:
        reset.empty(partial(_admin, self))

    def ask(self, asked: Asked) -> Answered:
        body = None if asked.text is None else asked.text.encode()
        answer = self._transport.send(asked.method, asked.target, asked.headers, body)
        return Answered(answer.status, dict(answer.headers), answer.body.decode())

    def __exit__(self, *_error: object) -> None:
        self._plane.stop()


def _admin(side: Side, method: str, path: str, version: str, ok: Collection[int] = (200, 204)) -> dict:
    """Sends a request as `tests.conformance.wire.Api` does, to empty a server."""
    answered = side.ask(Asked(method, path, version))
    if answered.status not in ok:
        raise RuntimeError(f"{method} {path}: {answered.status} {answered.body}")
    return answered.document if answered.status == 200 else {}
