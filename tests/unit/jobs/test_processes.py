"""Real processes of this machine. Not here: /proc with ``hidepid``, and other pid namespaces, which need mounts."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from moorage.jobs.worker_watch import UNKNOWN, is_running, this_process

HERE = this_process()


@pytest.fixture
def child():
    """A process that does nothing, and its identity."""
    program = "from moorage.jobs.worker_watch import this_process as p; i = p(); print(i.machine, i.pid, i.started)"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{program}; import sys; sys.stdout.flush(); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    machine, pid, started = child.stdout.readline().split()
    yield child, replace(HERE, machine=machine, pid=int(pid), started=int(started))
    child.kill()
    child.communicate()


def test_a_process_that_runs_is_running(child):
    _, identity = child
    assert identity.machine == HERE.machine
    assert is_running(HERE, HERE) is True
    assert is_running(identity, HERE) is True


def test_nobody_can_tell_of_a_stopped_process_whether_it_goes_on(child):
    process, identity = child
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert is_running(identity, HERE) is None
    process.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, process.pid, os.WCONTINUED | os.WNOWAIT)
    assert is_running(identity, HERE) is True


def test_a_killed_process_is_not_running_even_before_its_parent_notices(child):
    process, identity = child
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_running(identity, HERE) is False
    process.wait()
    assert is_running(identity, HERE) is False


def test_another_process_with_the_pid_is_not_the_same_process(child):
    _, identity = child
    assert is_running(replace(identity, started=identity.started - 1), HERE) is False


def test_a_pid_of_another_machine_or_namespace_says_nothing(child):
    _, identity = child
    assert is_running(replace(identity, machine="elsewhere"), HERE) is None
    assert is_running(UNKNOWN, HERE) is None
    assert is_running(identity, UNKNOWN) is None
    assert is_running(UNKNOWN, UNKNOWN) is None
