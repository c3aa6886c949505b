"""In place of the passing of time and of DevStack's port 80, for the Tempest plugin of Blazar: each sleep of a second or
more moves the clock of the plane forward (`moorage.rehearsal`), and the clock of the suite with it; gabbi's tests call
the plane.

SUITE_PLANE: the URL of the plane, whose clock is adjustable. SUITE_PASSWORD: of its user chief. Imported in
.venv-tempest.
"""

import os
import time
from datetime import UTC, datetime

import requests
import tempest.scenario.manager  # noqa: F401 - the plugin uses it, and does not import it
from gabbi import driver
from keystoneauth1.identity import Password
from keystoneauth1.session import Session
from oslo_utils import timeutils

PLANE = os.environ["SUITE_PLANE"]
#: The plane's clock moves in steps, between which its hosts report: a host that does not report for a minute is down.
STEP_S = 15.0
#: What the plane needs to do what is due after a step.
PAUSE_S = 0.2

_sleep = time.sleep
_session = Session(
    Password(
        f"{PLANE}/identity/v3", username="chief", password=os.environ["SUITE_PASSWORD"], project_name="admin",
        user_domain_id="default", project_domain_id="default",
    )
)  # fmt: skip


def sleep(seconds: float) -> None:
    left = seconds
    while seconds >= 1 and left > 0:
        answer = requests.post(
            f"{PLANE}/moorage/v1/clock",
            json={"advance_s": min(left, STEP_S)},
            headers=_session.get_auth_headers(),
            timeout=30,
        )
        answer.raise_for_status()
        now = datetime.fromisoformat(answer.json()["now"])
        timeutils.set_time_override(now.astimezone(UTC).replace(tzinfo=None))
        left -= STEP_S
        _sleep(PAUSE_S)
    if seconds < 1:
        _sleep(seconds)


_build_tests = driver.build_tests


def build_tests(*positional: object, **named: object) -> object:
    return _build_tests(*positional, **{**named, "url": f"{PLANE}/"})


time.sleep = sleep
driver.build_tests = build_tests
