"""The page Audit: administrators find what the services' data contradict, with their own token."""

import threading

import pytest

from moorage.audit.collector import collect_snapshot

STRAY = "0f6e1f0a-95cc-4c2b-8d5e-3a1f0c9d7e21"


@pytest.fixture(scope="module")
def stray(plane):
    """An allocation in Placement whose consumer no service knows, old enough to be a finding."""
    root = plane.placement.get("/moorage/v1/trees")["trees"][0]["uuid"]
    body = {
        "allocations": {root: {"resources": {"VCPU": 1}}},
        "project_id": "<b>red</b>",
        "user_id": "alice",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    plane.placement.request("PUT", f"/allocations/{STRAY}", json=body)
    plane.clock.sleep(3600)
    return STRAY


def test_an_audit_reports_each_finding_with_its_remedy_and_changes_nothing(plane, sign_in, stray):
    site = sign_in("admin")
    assert "Findings" not in site.get("/audit").text
    seen = site.post("/audit").text
    assert "1 finding." in seen
    assert "unknown consumer" in seen
    assert f'<a href="/ui/search?q={stray}">' in seen
    assert "<b>red" not in seen
    assert plane.placement.get(f"/allocations/{stray}")["allocations"]


def test_one_audit_runs_at_a_time(sign_in, stray, monkeypatch):
    site, other = sign_in("admin"), sign_in("admin")
    began, may_end, answers = threading.Event(), threading.Event(), []

    def slow(*arguments, **options):
        began.set()
        assert may_end.wait(30)
        return collect_snapshot(*arguments, **options)

    monkeypatch.setattr("moorage.wiring.audit.collect_snapshot", slow)
    first = threading.Thread(target=lambda: answers.append(site.post("/audit")))
    first.start()
    assert began.wait(30)
    refused = other.post("/audit")
    may_end.set()
    first.join()
    assert refused.status_code == 409
    assert "Another audit is running" in refused.text
    assert [answer.status_code for answer in answers] == [200]
    assert other.post("/audit").status_code == 200


@pytest.mark.parametrize("method", ["get", "post"])
def test_only_administrators_audit(sign_in, stray, method):
    assert getattr(sign_in("demo"), method)("/audit").status_code == 403


def test_another_site_cannot_start_an_audit(sign_in, stray):
    assert sign_in("admin").post("/audit", token="x").status_code == 403
