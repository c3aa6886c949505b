"""The small HTTP API of a host's accelerator agent, which `os_acc` speaks.

::

    GET  /v1/ready?wait_s=5      200 {"ready": true, "host": "compute-1"}, at the latest after the wait
    POST /v1/plug                {"instance_info", "selected_rp", "flavor_extra_specs"} -> {"devices": [{"pci_id"}]}
    POST /v1/unplug              {"instance_info"} -> {"released": 1}
    POST /v1/handles/{pci_id}/release     204: a quarantined handle is clean again

An error is ``{"error": {"code", "message"}}``. There is no authentication: whoever may open the socket (mode 0600,
`moorage.accelerator.agent_socket`) may ask, and it is served nowhere else.
"""

from collections.abc import Mapping

from moorage.accelerator.agent import AcceleratorAgent
from moorage.core.caller import ANONYMOUS, Caller
from moorage.core.errors import Invalid
from moorage.core.ids import Ids
from moorage.identity.policy import RuleTable
from moorage.wire.app import ServiceApi, Surroundings, WsgiApp, build
from moorage.wire.body import Schema
from moorage.wire.call import Call, Reply, Route
from moorage.wire.errors import Problem

#: An answer to GET /v1/ready takes no longer than this, however long the caller wants to wait.
MAX_WAIT_S = 30.0


def ready(call: Call[AcceleratorAgent]) -> Reply:
    text = call.query.first("wait_s") or "0"
    try:
        wait_s = min(max(float(text), 0.0), MAX_WAIT_S)
    except ValueError as error:
        raise Invalid(f"wait_s is {text!r}; it takes seconds") from error
    return Reply(body={"ready": call.service.wait_ready(wait_s), "host": call.service.host})


def plug(call: Call[AcceleratorAgent]) -> Reply:
    body = call.json
    devices = call.service.plug(body["instance_info"], body["selected_rp"], body["flavor_extra_specs"])
    return Reply(body={"devices": devices})


def unplug(call: Call[AcceleratorAgent]) -> Reply:
    return Reply(body={"released": call.service.unplug(call.json["instance_info"])})


def release(call: Call[AcceleratorAgent], pci_id: str) -> Reply:
    call.service.release_quarantined(pci_id)
    return Reply(204)


def _error(problem: Problem) -> Reply:
    return Reply(problem.status, {"error": {"code": problem.code, "message": problem.message}})


def _object_with(*names: str) -> Schema:
    return Schema({"type": "object", "required": list(names), "properties": {name: {} for name in names}})


API: ServiceApi[AcceleratorAgent] = ServiceApi(
    name="accelerator-agent",
    routes=(
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
    error_shape=_error,
    word_schema_error=lambda error: error.message,
)


class _Local:
    """Whoever could open the socket."""

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        return ANONYMOUS


def wsgi_app(agent: AcceleratorAgent, ids: Ids) -> WsgiApp:
    return build(API, agent, Surroundings(authenticator=_Local(), policy=RuleTable({}), ids=ids))
