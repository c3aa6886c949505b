"""The fork server of the tests: a fork behaves like a program that was started normally."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import ForkServer
from tests.system.planes import until

WAITS = "-c import os, time; print(os.getpid(), flush=True); time.sleep(60)"


@pytest.fixture(scope="module")
def server():
    with ForkServer(Path(sys.executable), "json") as server:
        yield server


def run(server, program, *words, **environment):
    return server.run(program, words, environment=environment, timeout=20)


def is_there(pid):
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("text", "status", "error"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("import sys; sys.exit('no')", 1, "no\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
        ("import atexit; atexit.register(print, 'end'); raise SystemExit(0)", 0, ""),
    ],
)
def test_a_fork_returns_the_exit_status_of_its_program(server, text, status, error):
    done = run(server, f"-c {text}")
    assert (done.returncode, done.stderr) == (status, error)
    assert done.stdout == ("end\n" if "atexit" in text else "")


def test_an_exception_in_a_fork_is_printed_and_the_exit_status_is_1(server):
    done = run(server, "-c raise ValueError('bad')")
    assert done.returncode == 1
    assert "ValueError: bad" in done.stderr


def test_a_fork_has_the_given_arguments_environment_and_directory_and_an_empty_stdin(server, tmp_path):
    text = "import os, sys; print(sys.argv[1:], os.environ['A'], os.getcwd(), repr(sys.stdin.read()))"
    done = server.run(f"-c {text}", ["x", 1], environment={"A": "b"}, timeout=20, directory=tmp_path)
    assert done.stdout == f"['x', '1'] b {tmp_path} ''\n"


def test_a_fork_imports_modules_from_the_given_pythonpath(server, tmp_path):
    (tmp_path / "own.py").write_text("def main():\n    print('own')\n    return 4\n")
    assert run(server, "own:main").returncode == 1
    done = run(server, "own:main", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (4, "own\n")


def test_a_fork_that_exceeds_its_timeout_is_killed(server):
    with pytest.raises(subprocess.TimeoutExpired):
        server.run(WAITS, (), environment={}, timeout=0.2)


def test_a_fork_is_killed_when_its_object_is_deleted_or_its_server_ends(tmp_path):
    out = tmp_path / "out"
    with ForkServer(Path(sys.executable), "json") as server, out.open("w") as stream:
        forks = [
            server.start(WAITS, (), environment={}, stdout=stream, stderr=stream, start_new_session=True)
            for _ in range(2)
        ]
        until(lambda: len(out.read_text().splitlines()) == 2)
        pids = [fork.pid for fork in forks]
        assert all(map(is_there, pids))
        forks.pop(0)
        until(lambda: not is_there(pids[0]))
        assert is_there(pids[1])
    until(lambda: not is_there(pids[1]))
    assert forks[0].wait(10) == -signal.SIGKILL


def test_the_executable_of_a_fork_passes_signals_on(server, tmp_path):
    program = server.executable("waits", WAITS)
    with subprocess.Popen([program], stdout=subprocess.PIPE, text=True, env=os.environ) as asking:
        pid = int(asking.stdout.readline())
        assert pid != asking.pid
        asking.terminate()
        assert asking.wait(10) == -signal.SIGTERM
    until(lambda: not is_there(pid))
