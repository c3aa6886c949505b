"""The lock of a state directory."""

import threading

import pytest

from moorage.cli import state
from moorage.cli.state import take_state
from moorage.core.errors import StartError


def test_a_locked_state_directory_is_a_start_error_with_the_pid_of_the_other_plane(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "LOCK_WAIT_S", 0.05)
    with take_state(tmp_path) as lock:
        lock.seek(0)
        with pytest.raises(StartError, match=f"is in use by another plane, pid {lock.read().strip()}: stop it"):
            take_state(tmp_path)


def test_a_start_waits_for_a_plane_that_is_stopping(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "LOCK_WAIT_S", 20.0)
    ending = take_state(tmp_path)
    end = threading.Timer(0.1, ending.close)
    end.start()
    take_state(tmp_path).close()
    end.join()
