"""The host agents' API; not part of Nova's.

PUT  /agent/v1/hosts/{host}        what the host is; a heartbeat
POST /agent/v1/hosts/{host}/jobs   ``{"worker", "limit"}`` -> its next jobs
GET  /agent/v1/hosts/{host}/servers  its servers, with a mark that changes when they do
PUT  /agent/v1/hosts/{host}/domains  ``{"domains": {id: {"mark", "power"}}, "consoles": {id: text}}``: what it saw
PUT  /agent/v1/jobs/{id}           ``{"epoch", "state", "result"}``: what became of one
"""

from moorage.compute.domain_service import Look
from moorage.compute.handlers.views import ComputeCall, amount
from moorage.compute.model import HostReport
from moorage.jobs.over_http import job_document, report_of
from moorage.wire.call import Reply


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
    call.service.agents.register(report)
    return Reply(204)


def claim(call: ComputeCall, host: str) -> Reply:
    jobs = call.service.agents.claim(host, call.json["worker"], call.json.get("limit", 1))
    return Reply(body={"jobs": [job_document(job) for job in jobs]})


def expected(call: ComputeCall, host: str) -> Reply:
    servers = call.service.domains.expected(host)
    return Reply(body={"servers": [{"id": server.id, "mark": server.mark} for server in servers]})


def seen(call: ComputeCall, host: str) -> Reply:
    domains = call.json["domains"].items()
    looks = [Look(server_id, row["mark"], row["power"]) for server_id, row in domains]
    call.service.domains.seen(host, looks, call.json.get("consoles", {}))
    return Reply(204)


def report(call: ComputeCall, job_id: str) -> Reply:
    call.service.agents.report(job_id, report_of(call.json))
    return Reply(204)
