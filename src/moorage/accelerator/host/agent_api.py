"""The small HTTP API of a host's accelerator agent, which `os_acc` speaks.

::

    GET  /v1/ready?wait_s=5      200 {"ready": true, "host": "compute-1"}, at the latest after the wait
    POST /v1/plug                {"instance_info", "selected_rp", "flavor_extra_specs"} -> {"devices": [{"pci_id"}]}
    POST /v1/unplug              {"instance_info"} -> {"released": 1}
    POST /v1/handles/{pci_id}/release     204: a quarantined handle is clean again

It is served on `moorage.accelerator.host.agent_socket` alone; who may ask, and what an error is: `moorage.wire.unix_socket_api`.
"""

from moorage.accelerator.host.agent import AcceleratorAgent
from moorage.core.errors import Invalid
from moorage.core.ids import Ids
from moorage.telemetry.trail import Trail
from moorage.wire.app import ServiceApi, WsgiApp
from moorage.wire.body import Schema
from moorage.wire.http import Request, Response, Route
from moorage.wire.unix_socket_api import build_local, local_api

#: An answer to GET /v1/ready takes no longer than this, however long the caller wants to wait.
MAX_WAIT_S = 30.0


def ready(request: Request[AcceleratorAgent]) -> Response:
    text = request.query.first("wait_s") or "0"
    try:
        wait_s = min(max(float(text), 0.0), MAX_WAIT_S)
    except ValueError as error:
        raise Invalid(f"wait_s is {text!r}; it takes seconds") from error
    return Response(body={"ready": request.service.wait_ready(wait_s), "host": request.service.host})


def plug(request: Request[AcceleratorAgent]) -> Response:
    body = request.json
    devices = request.service.plug(body["instance_info"], body["selected_rp"], body["flavor_extra_specs"])
    return Response(body={"devices": devices})


def unplug(request: Request[AcceleratorAgent]) -> Response:
    return Response(body={"released": request.service.unplug(request.json["instance_info"])})


def release(request: Request[AcceleratorAgent], pci_id: str) -> Response:
    request.service.release_quarantined(pci_id)
    return Response(204)


def _object_with(*names: str) -> Schema:
    return Schema({"type": "object", "required": list(names), "properties": {name: {} for name in names}})


API: ServiceApi[AcceleratorAgent] = local_api(
    "accelerator-agent",
    (
        Route("GET", "/v1/ready", ready, rule=None),
        Route(
            "POST",
            "/v1/plug",
            plug,
            rule=None,
            schema=_object_with("instance_info", "selected_rp", "flavor_extra_specs"),
        ),
        Route("POST", "/v1/unplug", unplug, rule=None, schema=_object_with("instance_info")),
        Route("POST", "/v1/handles/{pci_id}/release", release, rule=None),
    ),
)


def wsgi_app(agent: AcceleratorAgent, ids: Ids, trail: Trail | None = None) -> WsgiApp:
    return build_local(API, agent, ids, trail)
