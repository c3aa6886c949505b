"""The contract of jobs, compared with documents that the previous release wrote.

`recorded_jobs.json`: {kind: {"payload": ..., "results": {"done" or "failed": ...}}}, recorded in the wire tests at
1ff03e81, when creators and agents still wrote these documents field by field; ``release-handle`` and those of interfaces
later.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from moorage.agent.jobs.job_runner import JobRunner
from moorage.agent.jobs.server_build import NoAcceleration, ServerBuilder
from moorage.agent.virt.host_description import HostDescription
from moorage.agent.virt.simulated import SimulatedDriver
from moorage.core.clock import VirtualClock
from moorage.core.errors import Invalid
from moorage.jobs.contract import (
    CONTRACTS,
    BuildJob,
    JobKind,
    JobPayload,
    JobResult,
    PasswordJob,
    ServerJob,
    failure_of,
    payload_document,
    payload_of,
    result_document,
    result_of,
)

RECORDED = json.loads(Path(__file__).with_name("recorded_jobs.json").read_text())
KINDS = [JobKind(kind) for kind in RECORDED]


def as_json(document):
    return json.loads(msgspec.json.encode(document))


def test_a_document_of_every_kind_of_job_was_recorded():
    assert set(KINDS) == set(CONTRACTS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_payload_is_written_as_in_the_previous_release(kind):
    """So an agent of the previous release finds every field that it reads."""
    document = RECORDED[kind]["payload"]
    assert as_json(payload_document(kind, payload_of(kind, document, JobPayload))) == document


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_is_written_as_in_the_previous_release(kind):
    results = RECORDED[kind]["results"]
    if "done" in results:
        assert as_json(result_document(result_of(kind, results["done"], JobResult))) == results["done"]
    if "failed" in results:
        assert as_json(result_document(failure_of(kind, results["failed"]))) == results["failed"]


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_fields_of_a_newer_release_are_ignored(kind):
    document = RECORDED[kind]["payload"]
    newer = document | {"news": {"a": [1]}}
    assert payload_of(kind, newer, JobPayload) == payload_of(kind, document, JobPayload)


def test_a_job_of_the_previous_release_is_run(tmp_path):
    driver = SimulatedDriver(HostDescription(), tmp_path, VirtualClock(datetime(2030, 1, 1, tzinfo=UTC)))
    builder = ServerBuilder(driver, NoAcceleration(), lambda _: False, lambda _: frozenset(), None)
    runner = JobRunner(driver, builder, lambda: None)
    server_id = RECORDED["build"]["payload"]["server"]["id"]
    built = runner.run_job("build", RECORDED["build"]["payload"], lambda: None)
    assert built.keys() == RECORDED["build"]["results"]["done"].keys()
    assert driver.domains().keys() == {server_id}
    assert runner.run_job("destroy", RECORDED["build"]["payload"], lambda: None) == {"released": 0}
    assert driver.domains() == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_field_of_a_payload_is_an_error_that_names_it_the_kind_and_the_remedy(kind):
    payload_type = CONTRACTS[kind].payload
    for field in msgspec.structs.fields(payload_type):
        if field.required:
            document = {name: value for name, value in RECORDED[kind]["payload"].items() if name != field.name}
            with pytest.raises(Invalid, match=f"`{field.name}`.*kind {kind}.*upgrade") as caught:
                payload_of(kind, document, payload_type)
            assert caught.value.error_code == "agent.payload"


def test_a_malformed_field_of_a_payload_is_an_error_with_its_path():
    document = json.loads(json.dumps(RECORDED["build"]["payload"]))
    document["server"]["flavor"]["vcpus"] = "two"
    with pytest.raises(Invalid, match=r"Expected `int`, got `str` - at `\$\.server\.flavor\.vcpus`"):
        payload_of(JobKind.BUILD, document, BuildJob)


@pytest.mark.parametrize("result", [{"devices": "all"}, {"devices": [1]}, {"console": 5}, {"released": "one"}])
def test_a_malformed_result_is_an_error_with_its_path(result):
    place = next(iter(result))
    with pytest.raises(Invalid, match=rf"\$\.{place}.*kind start.*upgrade") as caught:
        result_of(JobKind.START, result, JobResult)
    assert caught.value.error_code == "jobs.report"


def test_a_payload_of_another_kind_of_job_is_a_type_error():
    payload = payload_of(JobKind.STOP, RECORDED["stop"]["payload"], ServerJob)
    with pytest.raises(TypeError, match="a job of kind set-password has a PasswordJob, not a ServerJob"):
        payload_document(JobKind.SET_PASSWORD, payload)
    with pytest.raises(TypeError, match="a job of kind stop has a ServerJob, not a PasswordJob"):
        payload_of(JobKind.STOP, RECORDED["stop"]["payload"], PasswordJob)
