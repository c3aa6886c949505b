"""A move that fails leaves its server as it was; one whose job another worker has now touches nothing."""

from types import SimpleNamespace

import pytest

from moorage.agent.jobs.move_jobs import MoveJobs
from moorage.agent.jobs.server_build import JobLost
from moorage.agent.model.power import PowerAction


@pytest.mark.parametrize(
    ("error", "expected"),
    [(RuntimeError("no space"), [PowerAction.STOP, PowerAction.START]), (JobLost("epoch 2"), [PowerAction.STOP])],
)
def test_a_server_that_was_stopped_for_its_snapshot_runs_again_unless_the_job_was_lost(error, expected):
    powered = []

    def upload_disk(_job):
        raise error

    jobs = MoveJobs(
        SimpleNamespace(power=lambda _server_id, action: powered.append(action)),
        SimpleNamespace(run_keeping_alive=lambda call, _keep_alive: call()),
        SimpleNamespace(upload_disk=upload_disk),
    )
    with pytest.raises(type(error)):
        jobs.shelve(SimpleNamespace(server=SimpleNamespace(id="server"), start=True), lambda: None)
    assert powered == expected
