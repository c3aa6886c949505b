"""No secret in any part of a request appears in the trail."""

import base64

from tests.wire.dashboard.site import Site

SECRET = "Zq9-secret-Xw7"


def test_no_secret_is_in_the_trail(trailed):
    token = trailed.token("admin")
    tokens = {
        trailed.token("demo"),
        token,
        trailed.password("admin"),
        trailed.password("demo"),
        trailed.password("moorage"),
    }
    headers = {
        "x-subject-token": SECRET,
        "x-service-token": SECRET,
        "cookie": f"session={SECRET}",
        "user-agent": SECRET,
        "x-forwarded-for": SECRET,
        "referer": f"http://x/?token={SECRET}",
        "x-openstack-request-id": SECRET,
    }
    since = trailed.size
    trailed.log_in("admin", SECRET)
    trailed.log_in(SECRET, "x")
    trailed.send("POST", "/placement/traits", {SECRET: SECRET}, user=None, headers=headers | {"x-auth-token": SECRET})
    basic = base64.b64encode(f"admin:{SECRET}".encode()).decode()
    trailed.send("PUT", "/placement/traits/CUSTOM_B", user=None, headers={"authorization": f"Basic {basic}"})
    trailed.send("DELETE", f"/accelerator/v2/accelerator_requests?token={SECRET}&arqs={SECRET}", headers=headers)
    server = {
        "server": {
            "name": SECRET,
            "adminPass": SECRET,
            "user_data": base64.b64encode(SECRET.encode()).decode(),
            "flavorRef": "nope",
            "metadata": {"password": SECRET},
            "networks": "none",
        }
    }
    trailed.send("POST", f"/compute/v2.1/servers?password={SECRET}", server, version="2.96")
    gone = "/compute/v2.1/servers/0e2a6bcd-1f7c-4b0f-9d7e-6a1d6c5b4a30/action"
    trailed.send("POST", gone, {"changePassword": {"adminPass": SECRET}}, version="2.96")
    key = {"keypair": {"name": "mine", "type": "ssh"}}
    made = trailed.send("POST", "/compute/v2.1/os-keypairs", key, version="2.2")
    lease = {"name": SECRET, "start_date": "now", "end_date": SECRET, "reservations": [], "events": []}
    trailed.send("POST", "/reservation/v1/leases", lease)
    site = Site(trailed.plane.plane.app)
    site.sign_in("admin", SECRET)
    site.sign_in("admin", trailed.password("admin"))
    site.post("/leases/new", name=SECRET)
    site.post("/people", name="x", password=SECRET, again=SECRET)
    site.post("/people/users/somebody/password", password=SECRET, again=SECRET)
    site.post("/password", original=SECRET, password=SECRET, again=SECRET)
    site.post("/invitation", code=SECRET, password=SECRET, again=SECRET)
    trailed.send("POST", "/identity/moorage/v1/invitations/password", {"token": SECRET, "password": SECRET})
    text = trailed.path.read_text(encoding="utf-8")
    assert len(trailed.entries(since)) >= 18, "all of these have entries"
    assert SECRET not in text
    assert base64.b64encode(SECRET.encode()).decode() not in text
    for secret in (*tokens, basic, *site.http.cookies.values()):
        assert secret not in text
    assert made.body["keypair"]["private_key"].splitlines()[2] not in text
