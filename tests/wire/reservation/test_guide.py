"""Sends every request in docs/reference/reservations.md, in its order; each must succeed."""

import json
import re
from urllib.parse import quote

from tests.docs.named import ROOT
from tests.wire.reservation.plane import instance, lease

PAGE = (ROOT / "docs" / "reference" / "reservations.md").read_text()


def requests():
    """(method, path, body) of each request of the page: a line, followed by the body as JSON."""
    for block in re.findall(r"```http\n(.*?)```", PAGE, re.DOTALL):
        for text in re.split(r"\n(?=[A-Z]+ /)", block.strip()):
            line, _, body = text.partition("\n")
            method, _, path = line.partition(" ")
            yield method, path, json.loads(body) if body else None


def test_every_request_of_the_guide_succeeds(new_plane):
    mail = {"smtp_server": "mail.example.com:25", "mail_sender": "leases@example.com", "mail_domains": "example.com"}
    plane = new_plane(before_end={"webhook_origins": "https://hooks.example.org", **mail})
    plane.add_host()
    plane.register()
    made = plane.ask("POST", "/v1/leases", lease(instance(), end="2026-12-24 10:00"), status=201)["lease"]
    ended = plane.ask("POST", "/v1/leases", lease(instance()), status=201)["lease"]
    plane.ask("DELETE", f"/v1/leases/{ended['id']}", status=204)
    names = {"LEASE": made["id"], "DELETED": ended["id"]}
    asked = list(requests())
    assert asked
    for method, path, body in asked:
        target, sent = quote(filled(path, names), safe="/?&=$"), json.loads(filled(json.dumps(body), names))
        status, answer = plane.answer(method, target, sent, version="1.1")
        assert 200 <= status < 300, (method, path, answer)
        for name in ("hold", "feed"):
            if name in (answer or {}):
                names[name.upper()] = answer[name]["id"]


def filled(text, names):
    for name, value in names.items():
        text = re.sub(rf"\b{name}\b", value, text)
    return text
