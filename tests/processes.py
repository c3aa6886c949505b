"""Real processes for tests: starts them, waits for them, stops them; and the stock clients."""

import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.programs import Fork, ForkServer, moorage_server

ROOT = Path(__file__).parents[1]
START_TIMEOUT_S = 90


def python_of(environment: str) -> Path:
    """The interpreter of one of the additional virtual environments of the tests."""
    python = ROOT / environment / "bin" / "python"
    if not python.exists():
        pytest.fail(f"{python} is not there; make it: make {environment}/.done", pytrace=False)
    return python


@contextlib.contextmanager
def running(command: Sequence[str | Path], url: str, log: Path, **environment: str) -> Iterator[None]:
    """Runs `command` as a process; returns when `url` first answers. Our modules (``python -m``) are forked."""
    own = {**inherited(), **environment}
    with log.open("w") as out:
        if list(command[:2]) == [sys.executable, "-m"]:
            process = moorage_server().start(
                f"-m {command[2]}", command[3:], environment=own, stdout=out, stderr=out, directory=ROOT,
                start_new_session=True,
            )  # fmt: skip
        else:
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, env=own, start_new_session=True)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{command[0]} did not start:\n{log.read_text()[-3000:]}", pytrace=False)
            time.sleep(0.02)
        yield
    finally:
        end(process)


def end(process: subprocess.Popen | Fork, patience_s: float = 10) -> None:
    """Sends SIGTERM; after `patience_s` kills it."""
    process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def inherited() -> dict[str, str]:
    """The environment for a process that must not find our modules and virtual environment."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "PYTHON"))}


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, verify=False, timeout=5).status_code < 500
    except httpx.HTTPError:
        return False


@dataclass(frozen=True)
class Cloud:
    """Our identity and image services in a separate process."""

    url: str
    state: Path

    @property
    def auth_url(self) -> str:
        return f"{self.url}/identity"

    def password(self, user: str) -> str:
        return json.loads((self.state / "credentials.json").read_text())[user]["password"]

    def variables(self, user: str, project: str) -> dict[str, str]:
        """The six variables that a user of OpenStack sets, and no others."""
        return {
            "OS_AUTH_URL": self.auth_url,
            "OS_USERNAME": user,
            "OS_PASSWORD": self.password(user),
            "OS_PROJECT_NAME": project,
            "OS_USER_DOMAIN_ID": "default",
            "OS_PROJECT_DOMAIN_ID": "default",
        }


@contextlib.contextmanager
def cloud(state: Path, *, image_url: str = "") -> Iterator[Cloud]:
    """`image_url`: the URL of another image service that the catalogue names instead of ours."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "tests.served", "tests.system.identity.served:application", str(port)]
    with running(
        command,
        f"{url}/identity/v3",
        state.with_name(f"{state.name}.log"),
        PYTHONPATH=f"{ROOT}/src:{ROOT}",
        SERVED_STATE=str(state),
        SERVED_IMAGE_URL=image_url,
    ):
        yield Cloud(url, state)


@dataclass(frozen=True)
class Said:
    """The output of one command of a client."""

    status: int
    out: str
    err: str

    @property
    def document(self):
        assert self.status == 0, f"{self.out}\n{self.err}"
        return json.loads(self.out)


#: Time limit of a command: some commands wait, and a client may wait for ever.
PATIENCE_S = 300


def openstack(
    variables: dict[str, str],
    *commands: Sequence[str],
    clients: str = ".venv-clients",
    shell: str = "openstackclient.shell",
) -> list[Said]:
    """Unmodified ``openstack`` commands, one after the other.

    `clients`: the environment to run them in. `shell`: the module of another shell, ``blazarclient.shell`` for
    ``blazar``.
    """
    return [
        Said(done.returncode, done.stdout, done.stderr)
        for done in (_client(clients, f"{shell}:main", command, variables) for command in commands)
    ]


def sdk(variables: dict[str, str], script: str) -> str:
    """The output of `script`, which finds a connection of openstacksdk as ``cloud``."""
    prelude = "import openstack\ncloud = openstack.connect()\n"
    done = _client(".venv-clients", f"-c {prelude}{script}", (), variables)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _client(
    environment: str, program: str, words: Sequence[str], variables: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    own = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    return client_server(environment).run(program, words, environment=own, timeout=PATIENCE_S)


@functools.cache
def client_server(environment: str = ".venv-clients") -> ForkServer:
    """The fork server that the tests of this process share: it has imported the clients and all their commands."""
    shells = ["openstackclient.shell"]
    if environment == ".venv-clients":
        # Each command reads the installed packages, which takes longer than the rest of its work.
        shells += ["blazarclient.shell", "cliff.command:_get_distributions_by_modules"]
    plugins = [f"entry-points:{group}" for group in ("openstack.", "keystoneauth1.", "cliff.formatter.")]
    return ForkServer(
        python_of(environment), *shells, *plugins, environment={"PYTHONWARNINGS": "ignore"}, longest_sleep_s=0.1
    )


def stock_openstack() -> Path:
    """An ``openstack`` program for shells, and for programs that start it."""
    return client_server().executable("openstack", "openstackclient.shell:main")
