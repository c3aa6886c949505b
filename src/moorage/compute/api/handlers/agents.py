"""The host agents' API; not part of Nova's.

PUT  /agent/v1/hosts/{host}        what the host is; a heartbeat
POST /agent/v1/hosts/{host}/jobs   ``{"worker", "limit"}`` -> its next jobs
GET  /agent/v1/hosts/{host}/servers  its servers, with a mark that changes when they do
GET  /agent/v1/hosts/{host}/servers/{id}  ``{"server": {"id", "name", "status"}}``: one of them
POST /agent/v1/hosts/{host}/servers/{id}/reboot  start one of them again, as an operator would: the host was down
PUT  /agent/v1/hosts/{host}/domains  ``{"domains": {id: {"mark", "power"}}, "consoles": {id: text}}``: what it saw
PUT  /agent/v1/jobs/{id}           ``{"epoch", "state", "result"}``: what became of one
"""

from dataclasses import replace

from moorage.compute.agents.domain_service import Look
from moorage.compute.api.handlers.views import ComputeRequest, amount
from moorage.compute.model import lifecycle
from moorage.compute.model.servers import HostReport
from moorage.jobs.job_api import job_document, report_of
from moorage.wire.http import Response


def register(request: ComputeRequest, host: str) -> Response:
    body = request.json
    report = HostReport(
        name=host,
        provider_uuid=body["provider_uuid"],
        hypervisor_type=body["hypervisor_type"],
        hypervisor_version=amount(body.get("hypervisor_version", 0), "hypervisor_version"),
        host_ip=body.get("host_ip", ""),
        vcpus=body["vcpus"],
        memory_mb=body["memory_mb"],
        local_gb=body["local_gb"],
        devices=body.get("devices", 0),
        cpu_info=body.get("cpu_info", {}),
        capabilities=tuple(body.get("capabilities", ())),
    )
    request.service.agents.register(report, by=request.caller.host)
    return Response(204)


def claim(request: ComputeRequest, host: str) -> Response:
    jobs = request.service.agents.claim(host, request.json["worker"], request.json.get("limit", 1))
    return Response(body={"jobs": [job_document(job) for job in jobs]})


def expected(request: ComputeRequest, host: str) -> Response:
    servers = request.service.domains.expected(host)
    return Response(body={"servers": [{"id": server.id, "mark": server.mark} for server in servers]})


def server(request: ComputeRequest, host: str, server_id: str) -> Response:
    found = request.service.domains.server(host, server_id)
    status = lifecycle.status(found.vm_state, found.task_state)
    return Response(body={"server": {"id": found.id, "name": found.name, "status": status}})


def reboot(request: ComputeRequest, host: str, server_id: str) -> Response:
    """In the name of the server's project: a host has none."""
    found = request.service.domains.server(host, server_id)
    caller = replace(request.caller, project_id=found.project_id, roles=frozenset({"service"}), host=None)
    request.service.operations.operate(caller, request.request_id, server_id, lifecycle.REBOOT_HARD)
    return Response(202)


def seen(request: ComputeRequest, host: str) -> Response:
    domains = request.json["domains"].items()
    looks = [Look(server_id, row["mark"], row["power"]) for server_id, row in domains]
    request.service.domains.seen(host, looks, request.json.get("consoles", {}))
    return Response(204)


def report(request: ComputeRequest, job_id: str) -> Response:
    request.service.agents.report(job_id, report_of(request.json), host=request.caller.host)
    return Response(204)
