"""The identities of hosts: one-time tokens, credentials, their rotation and their end."""

import json
import stat

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.errors import StartError, Unauthorized, Unavailable
from moorage.core.names import QUEUES
from moorage.identity.host_credential import ROTATION_PERIOD, HostTokens, enrol_host, enrol_or_keep
from moorage.identity.host_registry import digest_of
from tests.conftest import START
from tests.people import open_people

HOSTS = "/moorage/v1/hosts"


@pytest.fixture
def admin(wire):
    return wire.token("admin")


@pytest.fixture
def invited(wire, admin):
    def invite(name, expires_s=3600):
        status, _, document = wire.send("POST", f"{HOSTS}/{name}/enrolment", {"expires_s": expires_s}, admin)
        assert status == 201, document
        return document["token"]

    return invite


class LossyTransport:
    """A transport that loses the answers to the next requests with this method."""

    def __init__(self, inner):
        self.inner = inner
        self.lost = ""

    def send(self, method, path, headers, body=None):
        answer = self.inner.send(method, path, headers, body)
        if method == self.lost:
            raise Unavailable("the answer was lost")
        return answer

    def stream(self, method, path, headers):
        return self.inner.stream(method, path, headers)


@pytest.fixture
def way(plane):
    return LossyTransport(plane.transport("/identity"))


@pytest.fixture
def impatient():
    """A clock for the host's requests: pauses between retries take no time."""
    return VirtualClock(START)


@pytest.fixture
def on_host(tmp_path, way, clock, invited):
    """A function that enrols a host and returns its tokens."""

    def enrolled(name="compute-7"):
        path = tmp_path / name / "credential.json"
        enrol_host(path, name, invited(name), way, clock)
        return HostTokens(path, name, way, clock)

    return enrolled


def state_of(wire, admin, name):
    rows = wire.send("GET", HOSTS, token=admin)[2]["hosts"]
    return next((row["state"] for row in rows if row["name"] == name), None)


@pytest.fixture
def another(plane, ids):
    """The state directory as another process sees it."""
    return lambda: open_people(plane.config.state, clock=plane.clock, ids=ids)


@pytest.fixture
def whose(wire):
    """A function that returns the user's name for a token; None for an invalid token."""

    def name_of(token):
        status, _, document = wire.send("GET", "/v3/auth/tokens", token=token, x_subject_token=token)
        assert status in (200, 401)
        return document["token"]["user"]["name"] if status == 200 else None

    return name_of


def token_of(tokens, **options):
    return tokens.headers(**options)["x-auth-token"]


def test_a_host_exchanges_its_one_time_token_for_a_credential(tmp_path, another, on_host):
    tokens = on_host()
    path = tmp_path / "compute-7" / "credential.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    caller = another().identify(token_of(tokens)).caller
    assert caller.host == "compute-7"
    assert (caller.roles, caller.project_id, caller.is_admin, caller.is_service) == (frozenset(), "", False, False)


def test_the_service_stores_no_secret_and_no_one_time_token_in_plain_text(tmp_path, plane, invited, on_host):
    token = invited("compute-8")
    on_host()
    secret = json.loads((tmp_path / "compute-7" / "credential.json").read_text())["secret"]
    kept = plane.config.state / "hosts.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert token not in kept.read_text()
    assert secret not in kept.read_text()


def test_only_an_administrator_may_enrol_list_and_revoke_hosts(wire, on_host):
    demo, host = wire.token("demo"), on_host().headers()["x-auth-token"]
    for token, status in ((None, 401), (demo, 403), (host, 403)):
        assert wire.send("POST", f"{HOSTS}/compute-9/enrolment", {"expires_s": 60}, token)[0] == status
        assert wire.send("GET", HOSTS, token=token)[0] == status
        assert wire.send("DELETE", f"{HOSTS}/compute-7", token=token)[0] == status


def test_a_one_time_token_works_only_once(tmp_path, way, clock, invited):
    token = invited("compute-7")
    enrol_host(tmp_path / "first" / "credential.json", "compute-7", token, way, clock)
    with pytest.raises(Unauthorized, match=r"enrol it again \(moorage host enrol compute-7\)"):
        enrol_host(tmp_path / "second" / "credential.json", "compute-7", token, way, clock)
    assert not (tmp_path / "second" / "credential.json").exists()
    assert HostTokens(tmp_path / "first" / "credential.json", "compute-7", way, clock).headers()


def test_a_one_time_token_works_only_for_its_host_and_before_it_expires(tmp_path, way, clock, invited):
    token, other = invited("compute-7", 60), invited("compute-8", 600)
    path = tmp_path / "credential.json"
    for wrong in (other, token[:-1], "0" * 43):
        with pytest.raises(Unauthorized):
            enrol_host(path, "compute-7", wrong, way, clock)
        assert not path.exists()
    clock.sleep(60)
    with pytest.raises(Unauthorized, match="expired"):
        enrol_host(path, "compute-7", token, way, clock)


def test_a_new_one_time_token_replaces_the_previous_one(tmp_path, way, clock, invited):
    before, token = invited("compute-7"), invited("compute-7")
    with pytest.raises(Unauthorized):
        enrol_host(tmp_path / "credential.json", "compute-7", before, way, clock)
    enrol_host(tmp_path / "credential.json", "compute-7", token, way, clock)


def test_an_exchange_whose_answer_was_lost_can_be_repeated_only_by_the_same_host(tmp_path, way, impatient, invited):
    token, path = invited("compute-7"), tmp_path / "mine" / "credential.json"
    way.lost = "POST"
    with pytest.raises(Unavailable):
        enrol_host(path, "compute-7", token, way, impatient)
    way.lost = ""
    with pytest.raises(Unauthorized):
        enrol_host(tmp_path / "thief" / "credential.json", "compute-7", token, way, impatient)
    enrol_host(path, "compute-7", token, way, impatient)
    assert HostTokens(path, "compute-7", way, impatient).headers()
    assert [file.name for file in path.parent.iterdir()] == ["credential.json"]


def test_a_host_with_a_valid_credential_keeps_it_if_its_token_is_used_up(tmp_path, way, clock, wire, admin, invited):
    path, token = tmp_path / "a" / "credential.json", invited("compute-7")
    assert enrol_or_keep(path, "compute-7", token, way, clock)
    before = path.read_bytes()
    assert not enrol_or_keep(path, "compute-7", token, way, clock)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before
    assert enrol_or_keep(path, "compute-7", invited("compute-7"), way, clock)
    assert path.read_bytes() != before
    assert wire.send("DELETE", f"{HOSTS}/compute-7", token=admin)[0] == 204
    with pytest.raises(Unauthorized, match="moorage host enrol compute-7"):
        enrol_or_keep(path, "compute-7", token, way, clock)


def test_a_new_enrolment_invalidates_the_old_credential_only_after_the_exchange(
    tmp_path, wire, whose, invited, on_host
):
    before = on_host()
    secret = json.loads((tmp_path / "compute-7" / "credential.json").read_text())["secret"]
    invited("compute-7")
    assert whose(token_of(before)) == "host:compute-7"
    stolen = before.headers()["x-auth-token"]
    after = on_host()
    assert whose(stolen) is None
    assert wire.send("POST", f"{HOSTS}/compute-7/tokens", {"secret": secret})[0] == 401
    assert whose(token_of(after)) == "host:compute-7"


def test_a_revoked_host_is_refused_at_once_and_can_be_enrolled_again(wire, admin, whose, on_host):
    tokens = on_host()
    held = tokens.headers()["x-auth-token"]
    assert wire.send("DELETE", f"{HOSTS}/compute-7", token=admin)[0] == 204
    assert state_of(wire, admin, "compute-7") == "revoked"
    assert whose(held) is None
    with pytest.raises(Unauthorized, match="moorage host enrol compute-7"):
        tokens.headers(renew=True)
    assert whose(token_of(on_host())) == "host:compute-7"
    assert whose(held) is None


def test_revoking_a_host_invalidates_its_one_time_token(tmp_path, wire, admin, way, clock, invited):
    token = invited("compute-7")
    wire.send("DELETE", f"{HOSTS}/compute-7", token=admin)
    with pytest.raises(Unauthorized):
        enrol_host(tmp_path / "credential.json", "compute-7", token, way, clock)
    assert wire.send("DELETE", f"{HOSTS}/compute-8", token=admin)[0] == 404


def test_another_process_knows_a_new_host_at_once(another, on_host):
    """An agent calls several services in the second after its enrolment; a 401 would end its start."""
    other = another()
    assert other.identify(token_of(on_host())).host == "compute-7"


def test_another_process_sees_a_revocation_within_a_second(clock, another, wire, admin, on_host):
    tokens = on_host()
    other = another()
    held = tokens.headers()["x-auth-token"]
    assert other.identify(held).host == "compute-7"
    wire.send("DELETE", f"{HOSTS}/compute-7", token=admin)
    clock.sleep(1)
    with pytest.raises(Unauthorized):
        other.identify(held)


def test_an_access_token_expires_and_is_renewed(whose, clock, on_host):
    tokens = on_host()
    held = tokens.headers()["x-auth-token"]
    clock.sleep(3600)
    assert whose(held) is None
    assert whose(token_of(tokens)) == "host:compute-7"


def test_the_secret_is_rotated_each_week_and_the_old_one_becomes_invalid(tmp_path, wire, clock, whose, on_host):
    tokens, path = on_host(), tmp_path / "compute-7" / "credential.json"
    first = json.loads(path.read_text())["secret"]
    clock.sleep(ROTATION_PERIOD.total_seconds())
    for _ in range(2):  # the login that requests the rotation, and the one that starts it
        assert whose(token_of(tokens)) == "host:compute-7"
        clock.sleep(3600)
    now = json.loads(path.read_text())
    assert now["secret"] != first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert wire.send("POST", f"{HOSTS}/compute-7/tokens", {"secret": first})[0] == 401
    assert whose(token_of(tokens)) == "host:compute-7"


@pytest.mark.parametrize("lost", ["PUT", ""])
def test_a_host_can_log_in_after_an_interrupted_rotation(tmp_path, clock, whose, way, on_host, lost):
    tokens, path = on_host(), tmp_path / "compute-7" / "credential.json"
    clock.sleep(ROTATION_PERIOD.total_seconds())
    way.lost = "PUT"
    assert tokens.headers()
    way.lost = ""
    if not lost:  # the service has not received the request
        credential = json.loads(path.read_text()) | {"next_secret": "never-told"}
        path.write_text(json.dumps(credential))
    again = HostTokens(path, "compute-7", way, clock)
    assert whose(token_of(again)) == "host:compute-7"


def test_an_access_token_cannot_create_a_permanent_secret(wire, on_host):
    token = on_host().headers()["x-auth-token"]
    body = {"secret": token, "secret_sha256": digest_of("mine")}
    assert wire.send("PUT", f"{HOSTS}/compute-7/credential", body, token)[0] == 401
    assert wire.send("POST", f"{HOSTS}/compute-7/tokens", {"secret": "mine"})[0] == 401


def test_the_secret_of_one_host_does_not_work_for_another(tmp_path, wire, on_host):
    on_host("compute-7")
    on_host("compute-8")
    secret = json.loads((tmp_path / "compute-7" / "credential.json").read_text())["secret"]
    assert wire.send("POST", f"{HOSTS}/compute-8/tokens", {"secret": secret})[0] == 401
    body = {"secret": secret, "secret_sha256": digest_of("mine")}
    assert wire.send("PUT", f"{HOSTS}/compute-8/credential", body)[0] == 401


def test_an_invited_or_unknown_host_cannot_log_in(wire, invited):
    invited("compute-7")
    for name in ("compute-7", "compute-8"):
        assert wire.send("POST", f"{HOSTS}/{name}/tokens", {"secret": "x"})[0] == 401
        # The text for "no secret" in the file must not work as a secret.
        assert wire.send("POST", f"{HOSTS}/{name}/tokens", {"secret": ""})[0] == 400


def test_the_credential_of_another_host_is_refused_with_a_remedy(tmp_path, way, clock, on_host):
    on_host("compute-7")
    tokens = HostTokens(tmp_path / "compute-7" / "credential.json", "compute-8", way, clock)
    with pytest.raises(StartError, match="after renaming a host, enrol it again"):
        tokens.headers()


def test_a_credential_that_others_can_read_is_refused(tmp_path, on_host):
    tokens = on_host()
    (tmp_path / "compute-7" / "credential.json").chmod(0o640)
    with pytest.raises(StartError, match="chmod 0600"):
        tokens.headers()


@pytest.mark.parametrize("name", [*sorted(QUEUES), "-x", "a b", "é", "x" * 256])
def test_a_host_cannot_have_the_name_of_a_queue_or_an_invalid_name(wire, admin, name):
    assert wire.send("POST", f"{HOSTS}/{name.replace(' ', '%20')}/enrolment", {"expires_s": 60}, admin)[0] in (400, 404)
    assert state_of(wire, admin, name) is None


def test_a_host_cannot_have_the_name_of_another_hosts_provider(wire, admin, invited):
    invited("compute-1")
    for name in ("compute-1_NUMA_0", "compute-1_x"):
        status, _, document = wire.send("POST", f"{HOSTS}/{name}/enrolment", {"expires_s": 60}, admin)
        assert (status, "another name" in document["error"]["message"]) == (409, True)
    invited("compute-10")


def test_a_hosts_token_names_the_host_and_gives_no_project(wire, on_host):
    token = on_host().headers()["x-auth-token"]
    status, _, document = wire.send("GET", "/v3/auth/tokens", token=token, x_subject_token=token)
    assert (status, document["token"]["user"]["name"]) == (200, "host:compute-7")
    assert "project" not in document["token"]
    for scope in ("unscoped", {"project": {"name": "service", "domain": {"id": "default"}}}):
        auth = {"identity": {"methods": ["token"], "token": {"id": token}}, "scope": scope}
        status, _, _ = wire.send("POST", "/v3/auth/tokens", {"auth": auth})
        assert status == (201 if scope == "unscoped" else 401)
    assert wire.send("GET", "/v3/users", token=token)[0] == 403
    assert wire.send("GET", "/v3/auth/catalog", token=token)[0] == 403


def test_a_host_in_the_services_own_process_needs_no_secret_and_cannot_be_revoked(wire, admin, plane):
    plane.service("identity").hosts.enrol_own_hosts(["compute-1", "compute-2"])
    assert [state_of(wire, admin, name) for name in ("compute-1", "compute-2")] == ["own", "own"]
    status, _, document = wire.send("DELETE", f"{HOSTS}/compute-1", token=admin)
    assert (status, "[plane] services" in document["error"]["message"]) == (409, True)
    assert wire.send("POST", f"{HOSTS}/compute-1/tokens", {"secret": ""})[0] == 400


def test_with_an_unreadable_hosts_file_no_new_host_is_accepted(plane, wire, clock, another, invited, on_host, admin):
    on_host()
    (plane.config.state / "hosts.json").write_text("{")
    # A running process keeps the hosts in its memory, and does not overwrite the file.
    clock.sleep(1)
    assert state_of(wire, admin, "compute-7") == "enrolled"
    assert wire.send("POST", f"{HOSTS}/compute-8/enrolment", {"expires_s": 60}, admin)[0] == 500
    with pytest.raises(StartError, match="restore it from a backup"):
        another()
