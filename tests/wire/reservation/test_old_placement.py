"""Reservations with an older Placement: the real service, with a shortened range of microversions."""

from dataclasses import replace
from datetime import timedelta

import pytest

from moorage.core.errors import StartError
from moorage.placement.api import routes
from moorage.placement.api.handlers import answers
from moorage.placement.api.routes import API
from moorage.placement.client.placement_client import PlacementClient
from moorage.wire.microversion import Version, VersionRange
from tests.wire.reservation.plane import NOW, class_of, lease


@pytest.fixture
def speak_up_to(plane, monkeypatch):
    """A function that limits Placement to the microversion 1.`minor`, and restarts all services."""

    def speak(minor):
        versions = VersionRange("placement", Version(1, 0), Version(1, minor), loose=True)
        monkeypatch.setattr(answers, "VERSIONS", versions)
        monkeypatch.setattr(routes, "API", replace(API, versions=versions))
        plane.cloud.resting = (*plane.cloud.resting, "compute")  # compute requires a newer Placement
        plane.cloud.restart()

    return speak


def test_a_start_with_a_placement_older_than_1_29_fails_clearly(speak_up_to):
    """R36 (instance-reservation)."""
    with pytest.raises(StartError, match=r"Placement supports microversions up to 1\.28, but reservations need 1\.29"):
        speak_up_to(28)
    speak_up_to(29)


def test_the_service_starts_before_placement_answers(plane):
    """R36 (instance-reservation): services start in any order."""
    plane.cloud.beside("early", "reservation", endpoints={"placement": "http://nowhere.example"})


def test_no_request_to_placement_needs_more_than_1_29(plane, speak_up_to):
    """R36 (instance-reservation): a lease lives from its host's registration to its end with that version."""
    plane.stop_runner()
    speak_up_to(29)
    plane.register()
    made = plane.ask("POST", "/v1/leases", lease(end="2026-03-01 10:30"), status=201)["lease"]
    name = class_of(made["reservations"][0])
    plane.runner.run_once()
    assert plane.lease(made["id"])["status"] == "ACTIVE"
    plane.run_until(NOW + timedelta(hours=2))
    plane.runner.run_once()
    assert plane.lease(made["id"])["status"] == "TERMINATED"
    assert not PlacementClient(plane.client("placement"), "1.29").has_class(name)
    plane.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    plane.ask("DELETE", "/v1/os-hosts/1", status=204)
