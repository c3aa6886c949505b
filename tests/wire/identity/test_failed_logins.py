"""Guessing passwords over HTTP: which callers must wait, and that the answers reveal nothing else."""

import base64

import bcrypt
import pytest

from moorage.identity.tokens.throttle import FREE_FAILURES
from tests.plane import InProcessPlane

HERE, ELSEWHERE = "192.0.2.1", "198.51.100.7"


def log_in(wire, name, password, address=HERE):
    user = {"name": name, "password": password, "domain": {"id": "default"}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}}}
    return wire.send("POST", "/v3/auth/tokens", body, x_forwarded_for=address)


@pytest.mark.parametrize("name", ["demo", "nobody"])
def test_after_a_few_wrong_passwords_a_login_must_wait_for_existing_and_unknown_users(wire, name):
    assert [log_in(wire, name, "wrong")[0] for _ in range(FREE_FAILURES)] == [401] * FREE_FAILURES
    status, headers, document = log_in(wire, name, "wrong")
    assert (status, headers["retry-after"]) == (429, "1")
    assert document["error"] == {
        "code": 429,
        "title": "Too Many Requests",
        "message": "too many failed logins; try again in 1 seconds",
    }


def test_during_the_wait_even_the_right_password_is_refused_unchecked(wire, passwords, clock, monkeypatch):
    for _ in range(FREE_FAILURES):
        log_in(wire, "demo", "wrong")
    checked = []
    monkeypatch.setattr(bcrypt, "checkpw", lambda *given: checked.append(given))
    assert log_in(wire, "demo", passwords["demo"])[2] == log_in(wire, "demo", "wrong")[2]
    assert checked == []
    monkeypatch.undo()
    assert log_in(wire, "demo", passwords["demo"], ELSEWHERE)[0] == 201
    clock.sleep(1)
    assert log_in(wire, "demo", passwords["demo"])[0] == 201


def test_a_login_of_an_unknown_user_takes_as_many_bcrypt_rounds(wire, monkeypatch):
    rounds = []
    real = bcrypt.checkpw
    monkeypatch.setattr(bcrypt, "checkpw", lambda given, kept: rounds.append(kept[:7]) or real(given, kept))
    for name in ("demo", "nobody"):
        assert log_in(wire, name, "wrong")[0] == 401
    assert rounds == [b"$2b$04$", b"$2b$04$"]


def test_failed_logins_by_id_and_by_name_are_counted_together(wire):
    user = wire.log_in("demo")[2]["token"]["user"]["id"]
    for _ in range(FREE_FAILURES):
        log_in(wire, "demo", "wrong")
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": {"id": user, "password": "wrong"}}}}}
    assert wire.send("POST", "/v3/auth/tokens", body, x_forwarded_for=HERE)[0] == 429


def test_wrong_passwords_by_http_basic_must_wait_too(tmp_path, clock, ids):
    options = {"identity": {"mode": "http_basic"}, "server": {"proxies": "10.0.0.0/8"}}
    with InProcessPlane(tmp_path, "identity", clock=clock, ids=ids, authenticator=None, **options) as plane:
        guess = {"authorization": "Basic " + base64.b64encode(b"demo:wrong").decode(), "x-forwarded-for": HERE}
        answers = [plane.transport().send("GET", "/identity/v3/auth/projects", guess) for _ in range(FREE_FAILURES + 1)]
        assert [answer.status for answer in answers] == [401] * FREE_FAILURES + [429]
        assert answers[-1].headers["retry-after"] == "1"
