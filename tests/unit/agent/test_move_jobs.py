"""A failed move restores its server; a move whose job another worker has claimed changes nothing any more."""

from types import SimpleNamespace

import pytest

from moorage.agent.jobs.move_jobs import MoveJobs
from moorage.agent.jobs.server_build import JobLost
from moorage.agent.model import PowerAction


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("no space"), [PowerAction.STOP, "attach", PowerAction.START]),
        (JobLost("epoch 2"), [PowerAction.STOP]),
    ],
)
def test_after_a_failed_shelve_the_server_is_started_again_unless_the_job_was_lost(error, expected):
    """It gets its devices back first: an earlier attempt may have released them."""
    calls = []

    def upload_disk(_job):
        raise error

    jobs = MoveJobs(
        SimpleNamespace(power=lambda _server_id, action: calls.append(action)),
        SimpleNamespace(
            run_keeping_alive=lambda call, _keep_alive: call(),
            attach=lambda _job, _keep_alive: calls.append("attach"),
        ),
        SimpleNamespace(upload_disk=upload_disk),
    )
    with pytest.raises(type(error)):
        jobs.shelve(SimpleNamespace(server=SimpleNamespace(id="server"), start=True), lambda: None)
    assert calls == expected
