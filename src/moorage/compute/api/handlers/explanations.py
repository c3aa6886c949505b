"""Explanations why a server finds a host or not, for an existing or a hypothetical server (`explain_service`)."""

from moorage.compute.api.handlers.servers import ServerBody, new_server
from moorage.compute.api.handlers.views import ComputeRequest
from moorage.compute.api.policy_rules import EXPLAIN_HOSTS_RULE
from moorage.compute.servers.explain_service import HostExplanation
from moorage.core.json import Json
from moorage.scheduler.reasons import NO_VALID_HOST
from moorage.wire.http import Response


def of_new_server(request: ComputeRequest) -> Response:
    wanted: ServerBody = request.json["server"]
    body: ServerBody = {**wanted, "name": wanted.get("name", "explained")}
    explained = request.service.explanations.explain_new_server(
        request.caller,
        new_server(request, body),
        may_force_host=request.allowed("os_compute_api:servers:create:forced_host"),
    )
    return _reply(request, explained)


def of_server(request: ComputeRequest, server_id: str) -> Response:
    return _reply(request, request.service.explanations.explain_server(request.caller, server_id))


def _reply(request: ComputeRequest, explained: HostExplanation) -> Response:
    reasons, found = explained.reasons, len(explained.hosts)
    text = f"{found} {'host' if found == 1 else 'hosts'} can run the server."
    view: dict[str, Json] = {
        "text": text if found else f"{NO_VALID_HOST} {reasons.user_message()}",
        "hosts": found,
        "constraints": [
            {"constraint": one.condition, "before": one.before, "after": one.after} for one in reasons.counts
        ],
        "filters": [
            {"filter": name, "before": before + found, "after": after + found}
            for name, before, after in reasons.filter_counts()
        ],
        "rejected": reasons.rejected_counts(),
        "fault": explained.fault,
    }
    if request.allowed(EXPLAIN_HOSTS_RULE):
        view |= {
            "host_names": list(explained.hosts),
            "rejected_hosts": {host: reason for host, (_, reason) in sorted(reasons.rejected.items())},
            "closest": list(reasons.closest),
            "change": reasons.change,
            "query": reasons.query,
            "examples": [example for one in reasons.counts for example in one.examples],
        }
    return Response(body={"explanation": view})
