from moorage.reservation.client import HostRecord, LeaseView, ReservationClient, ReservationView
from tests.wire.reservation.plane import instance, lease


def test_leases_and_hosts_are_seen_as_the_api_shows_them(reserved):
    client = ReservationClient(reserved.client("reservation"))
    made = reserved.ask("POST", "/v1/leases", lease(instance(3), start="2026-03-01 10:00"), status=201)["lease"]
    rid = made["reservations"][0]["id"]
    (seen,) = client.leases()
    amounts = {"VCPU": 1, "MEMORY_MB": 1024, "DISK_GB": 10}
    assert seen == LeaseView(
        made["id"],
        "lease",
        "demo",
        "PENDING",
        "2026-03-01T10:00:00.000000",
        "2026-03-02T10:00:00.000000",
        (ReservationView(rid, "virtual:instance", "pending", 3, rid, None, amounts),),
    )
    assert client.lease(made["id"]) == seen
    assert client.lease("nobody") is None
    assert client.hosts() == [HostRecord("1", "compute-1", reservable=True, service_name="compute-1")]
