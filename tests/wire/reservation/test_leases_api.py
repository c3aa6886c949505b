"""The lease API: formats, dates, refusals, rules. The formats are Blazar 18's, unless a test says otherwise."""

import pytest

from tests.wire.reservation.plane import instance, lease

LEASE_KEYS = [
    "id", "name", "user_id", "project_id", "start_date", "end_date", "trust_id", "status", "degraded", "created_at",
    "updated_at", "reservations", "events",
]  # fmt: skip
RESERVATION_KEYS = [
    "id", "lease_id", "resource_id", "resource_type", "status", "missing_resources", "resources_changed", "created_at",
    "updated_at", "vcpus", "memory_mb", "disk_gb", "amount", "affinity", "resource_properties", "flavor_id",
    "aggregate_id", "server_group_id",
]  # fmt: skip
EVENT_KEYS = ["id", "lease_id", "event_type", "time", "status", "created_at", "updated_at"]

LATER = {"start": "2026-03-05 10:00", "end": "2026-03-06 10:00"}


def refused(plane, body, method="POST", path="/v1/leases", **who):
    status, answer = plane.answer(method, path, body, **who)
    assert status >= 400, answer
    assert answer["error_code"] == answer["error_name"] == status
    return status, answer["error_message"]


def create(plane, *reservations, **values):
    return plane.ask("POST", "/v1/leases", lease(*reservations, **values), status=201)["lease"]


def test_a_lease_has_blazars_keys(reserved):
    """R13 (instance-reservation): pending, flavor_id is the reservation's id, no aggregate, no server group."""
    made = create(reserved, **LATER)
    assert list(made) == LEASE_KEYS
    (reservation,) = made["reservations"]
    assert list(reservation) == RESERVATION_KEYS
    assert reservation["status"] == "pending"
    assert reservation["flavor_id"] == reservation["id"]
    assert (reservation["aggregate_id"], reservation["server_group_id"]) == (None, None)
    assert (reservation["missing_resources"], reservation["resources_changed"]) == (False, False)
    assert all(list(event) == EVENT_KEYS for event in made["events"])
    assert {event["event_type"]: event["time"] for event in made["events"]} == {
        "start_lease": "2026-03-05T10:00:00.000000",
        "before_end_lease": "2026-03-06T09:00:00.000000",
        "end_lease": "2026-03-06T10:00:00.000000",
    }
    assert reserved.ask("GET", f"/v1/leases/{made['id']}")["lease"] == made
    assert reserved.ask("GET", "/v1/leases")["leases"] == [made]


def test_dates_have_the_format_that_clients_parse(reserved):
    made = create(reserved)
    assert (made["start_date"], made["end_date"]) == ("2026-03-01T09:30:00.000000", "2026-03-02T10:00:00.000000")
    assert made["created_at"] == "2026-03-01 09:30:20.000000"


@pytest.mark.parametrize("suffix", ["", ".json"])
def test_every_route_also_answers_with_json(reserved, suffix):
    made = create(reserved, **LATER)
    assert len(reserved.ask("GET", f"/v1/leases{suffix}")["leases"]) == 1
    assert reserved.ask("GET", f"/v1/leases/{made['id']}{suffix}")["lease"]["id"] == made["id"]
    reserved.ask("GET", f"/v1/os-hosts/1{suffix}")


def test_a_lease_without_reservations_is_accepted(reserved):
    body = lease(**LATER) | {"reservations": []}
    assert reserved.ask("POST", "/v1/leases", body, status=201)["lease"]["status"] == "PENDING"


@pytest.mark.parametrize(
    ("given", "stored"),
    [("absent", None), (None, None), ("None", None), (True, True), ("False", False), ("yes", True), (0, False)],
)
def test_affinity_is_optional_and_accepted_in_the_clients_formats(reserved, given, stored):
    """R15 (instance-reservation): the peer answers 500 when it is absent."""
    asked = instance(affinity=given)
    if given == "absent":
        del asked["affinity"]
    assert create(reserved, asked, **LATER)["reservations"][0]["affinity"] is stored


@pytest.mark.parametrize("given", ["bogus", "", 2])
def test_an_invalid_affinity_is_refused(shared, given):
    """R15 (instance-reservation)."""
    assert refused(shared, lease(instance(affinity=given))) == (
        400,
        "Malformed parameter affinity (must be a bool value or None)",
    )


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"start_date": "2020-01-01 00:00"}, 400, "Start date must be later than current date"),
        ({"start_date": "2026-03-03 10:00"}, 400, "End date must be later than start date."),
        ({"end_date": "now"}, 400, "End date must be later than start date."),
        ({"start_date": "Bogus"}, 400, "Bogus is an invalid date. Required format: %Y-%m-%d %H:%M"),
        (
            {"end_date": "2026-11-24T15:42:23.945373"},
            400,
            "2026-11-24T15:42:23.945373 is an invalid date. Required format: %Y-%m-%d %H:%M",
        ),
        (
            {"end_date": "9999-12-31 23:59"},
            400,
            "9999-12-31 23:59 is too far in the future: dates must be before 9000-01-01",
        ),
        ({"before_end_date": "2026-03-09 10:00"}, 403, "Datetime is out of lease limits"),
        ({"name": 5}, 400, "Malformed parameter name: 5 is not of type 'string'"),
        ({"reservations": {}}, 400, "Malformed parameter reservations: {} is not of type 'array'"),
    ],
)
def test_malformed_leases_are_refused(shared, change, status, message):
    assert refused(shared, lease() | change) == (status, message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "x", "start_date": "now"}, "Missing parameter end_date"),
        ({}, "Missing parameter start_date, end_date, name"),
    ],
)
def test_missing_parameters_are_named(shared, body, message):
    assert refused(shared, body) == (400, message)


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"resource_type": "x:y"}, 400, "The x:y resource type is not supported"),
        ({"amount": 0}, 400, "amount must be >= 1"),
        ({"amount": "0"}, 400, "amount must be >= 1"),
        ({"amount": "3,foo=1"}, 400, "Malformed parameter amount: '3,foo=1' is not of type 'integer'"),
        ({"vcpus": ""}, 400, "Malformed parameter vcpus: '' is not of type 'integer'"),
        ({"vcpus": True}, 400, "Malformed parameter vcpus: True is not of type 'integer'"),
        ({"memory_mb": -1}, 400, "memory_mb must be >= 1"),
        ({"disk_gb": 2**40}, 400, f"disk_gb must be <= {2**31 - 1}"),
        # A flavor cannot have 0 of them. This once caused 503, because compute refused the flavor.
        ({"vcpus": 0}, 400, "vcpus must be >= 1"),
        ({"vcpus": 0, "memory_mb": 0, "disk_gb": 0}, 400, "vcpus must be >= 1"),
    ],
)
def test_malformed_reservations_are_refused(shared, change, status, message):
    """D6: all amounts 0 hang the peer's manager; D16: texts and unknown types cause its 500."""
    assert refused(shared, lease(instance() | change)) == (status, message)
    assert shared.ask("GET", "/v1/leases")["leases"] == []


def test_a_reservation_without_a_type_is_refused(shared):
    assert refused(shared, lease({"a": 1})) == (400, "Missing parameter resource_type")


def test_a_shortage_is_409_with_the_reason(shared):
    """D16: the peer answers 500."""
    status, message = refused(shared, lease(instance(9)))
    assert status == 409
    assert message == (
        "Not enough hosts available: 9 instances of 1 VCPU, 1024 MEMORY_MB, 10 DISK_GB cannot be reserved in that period; "
        "8 fit, on 1 host; the whole lease fits at no time within 90 days"
    )


def test_a_shortage_names_the_closest_possible_reservation(reserved):
    """U9: a smaller amount at that time, or the same later."""
    create(reserved, instance(6), start="2026-03-01 12:00", end="2026-03-03 12:00")
    status, message = refused(reserved, lease(instance(4), start="2026-03-02 12:00", end="2026-03-02 14:00"))
    assert status == 409
    assert message.endswith("2 fit, on 1 host; the whole lease fits from 2026-03-03 12:00 on")
    create(reserved, instance(2), start="2026-03-02 12:00", end="2026-03-02 14:00")
    create(reserved, instance(4), start="2026-03-03 12:00", end="2026-03-03 14:00")


def test_properties_choose_hosts(reserved):
    reserved.ask("PUT", "/v1/os-hosts/1", {"rack": "10"})
    wanted = instance(resource_properties='[">", "$rack", "9"]')
    assert create(reserved, wanted, **LATER)["reservations"][0]["resource_properties"] == '[">", "$rack", "9"]'
    assert refused(reserved, lease(instance(resource_properties='["<", "$rack", "9"]')))[0] == 409


@pytest.mark.parametrize(
    ("text", "words"),
    [('["or"]', "Malformed requirements ['or']"), ('["=", "$zz", "1"]', "no host has a property zz")],
)
def test_malformed_properties_are_refused(shared, text, words):
    """D16: an unknown property causes the peer's 500."""
    status, message = refused(shared, lease(instance(resource_properties=text)))
    assert status == 400
    assert words in message


def test_two_reservations_of_one_lease_cannot_use_the_same_capacity(reserved):
    """D2: the peer accepts two 8-CPU reservations on one 8-CPU host."""
    assert refused(reserved, lease(instance(vcpus=8), instance(vcpus=8)))[0] == 409
    assert len(create(reserved, instance(vcpus=4), instance(vcpus=4))["reservations"]) == 2


def test_leases_never_exceed_the_capacity(reserved):
    """D1: in the peer, a host of 8 CPUs accepts leases of 8, 7, 6 and 5 single-CPU slots."""
    create(reserved, instance(8))
    for amount in (7, 6, 5, 1):
        assert refused(reserved, lease(instance(amount)))[0] == 409


def test_back_to_back_leases_fit(reserved):
    """A16 (instance-reservation): half-open periods."""
    create(reserved, instance(8), start="2026-03-05 10:00", end="2026-03-06 10:00")
    create(reserved, instance(8), start="2026-03-06 10:00", end="2026-03-07 10:00")
    create(reserved, instance(8), start="2026-03-04 10:00", end="2026-03-05 10:00")


def test_an_unknown_lease_is_not_found(reserved):
    for method, body in (("GET", None), ("PUT", {"name": "x"}), ("DELETE", None)):
        assert refused(reserved, body, method, "/v1/leases/xyz") == (404, "Object with {'lease_id': 'xyz'} not found")


def test_leases_belong_to_their_project(reserved):
    mine = {"user": "a", "project": "one", "roles": ("member",)}
    other = {"user": "b", "project": "two", "roles": ("member",)}
    made = reserved.ask("POST", "/v1/leases", lease(**LATER), status=201, **mine)["lease"]
    path = f"/v1/leases/{made['id']}"
    assert (made["user_id"], made["project_id"]) == ("a", "one")
    assert reserved.ask("GET", "/v1/leases", **other)["leases"] == []
    for method, rule, body in (("GET", "get", None), ("PUT", "put", {"name": "x"}), ("DELETE", "delete", None)):
        assert refused(reserved, body, method, path, **other) == (
            403,
            f"Policy doesn't allow blazar:leases:{rule} to be performed",
        )
    assert len(reserved.ask("GET", "/v1/leases")["leases"]) == 1  # an administrator sees all leases
    reserved.ask("DELETE", path, status=204, **mine)


def test_readers_may_not_create_leases(reserved):
    reader = {"user": "r", "roles": ("reader",)}
    reserved.ask("GET", "/v1/leases", **reader)
    assert refused(reserved, lease(), **reader) == (403, "Policy doesn't allow blazar:leases:post to be performed")


def test_versions_need_no_token(plane):
    transport = plane.client("reservation")._transport
    for path in ("/", "/versions"):
        answer = transport.send("GET", path, {})
        assert answer.status == 300
        assert b'"href":"http://cloud.example:8778/reservation/v1"' in answer.body
    assert transport.send("GET", "/v1", {}).status == 200
    assert transport.send("GET", "/v1/leases", {}).status == 401


def test_the_microversion_is_negotiated(plane):
    http = plane.client("reservation")
    answer = http.request_raw("GET", "/v1/leases", version="1.0")
    assert answer.headers["openstack-api-version"] == "reservation 1.0"
    assert http.request_raw("GET", "/v1/leases", version="latest").status == 200
    refusal = http.request_raw("GET", "/v1/leases", version="9.9", accept=(406,))
    assert refusal.body == (
        b'{"error":406,"error_message":"Version 9.9 is not supported by the API. Minimum is 1.0 and maximum is 1.1."}'
    )
