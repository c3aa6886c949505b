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
from moorage.compute.api.handlers.views import ComputeCall, amount
from moorage.compute.model import lifecycle
from moorage.compute.model.servers import HostReport
from moorage.jobs.job_api import job_document, report_of
from moorage.wire.http import Reply


def register(call: ComputeCall, host: str) -> Reply:
    body = call.json
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
    call.service.agents.register(report, by=call.caller.host)
    return Reply(204)


def claim(call: ComputeCall, host: str) -> Reply:
    jobs = call.service.agents.claim(host, call.json["worker"], call.json.get("limit", 1))
    return Reply(body={"jobs": [job_document(job) for job in jobs]})


def expected(call: ComputeCall, host: str) -> Reply:
    servers = call.service.domains.expected(host)
    return Reply(body={"servers": [{"id": server.id, "mark": server.mark} for server in servers]})


def server(call: ComputeCall, host: str, server_id: str) -> Reply:
    found = call.service.domains.server(host, server_id)
    status = lifecycle.status(found.vm_state, found.task_state)
    return Reply(body={"server": {"id": found.id, "name": found.name, "status": status}})


def reboot(call: ComputeCall, host: str, server_id: str) -> Reply:
    """In the name of the server's project: a host has none."""
    found = call.service.domains.server(host, server_id)
    caller = replace(call.caller, project_id=found.project_id, roles=frozenset({"service"}), host=None)
    call.service.operations.operate(caller, call.request_id, server_id, lifecycle.REBOOT_HARD)
    return Reply(202)


def seen(call: ComputeCall, host: str) -> Reply:
    domains = call.json["domains"].items()
    looks = [Look(server_id, row["mark"], row["power"]) for server_id, row in domains]
    call.service.domains.seen(host, looks, call.json.get("consoles", {}))
    return Reply(204)


def report(call: ComputeCall, job_id: str) -> Reply:
    call.service.agents.report(job_id, report_of(call.json), host=call.caller.host)
    return Reply(204)
