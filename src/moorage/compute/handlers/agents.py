"""The host agents' API; not part of Nova's.

PUT  /agent/v1/hosts/{host}        what the host is; a heartbeat
POST /agent/v1/hosts/{host}/jobs   ``{"worker", "limit"}`` -> its next jobs
PUT  /agent/v1/jobs/{id}           ``{"epoch", "state", "result"}``: what became of one
"""

from moorage.compute.agent_service import Report
from moorage.compute.handlers.views import ComputeCall
from moorage.compute.model import HostReport
from moorage.jobs.model import Job
from moorage.wire.call import Reply


def register(call: ComputeCall, host: str) -> Reply:
    body = call.json
    report = HostReport(
        name=host,
        provider_uuid=body["provider_uuid"],
        hypervisor_type=body["hypervisor_type"],
        hypervisor_version=int(body.get("hypervisor_version", 0)),
        host_ip=body.get("host_ip", ""),
        vcpus=body["vcpus"],
        memory_mb=body["memory_mb"],
        local_gb=body["local_gb"],
        devices=body.get("devices", 0),
        cpu_info=body.get("cpu_info", {}),
    )
    call.service.agents.register(report)
    return Reply(204)


def claim(call: ComputeCall, host: str) -> Reply:
    jobs = call.service.agents.claim(host, call.json["worker"], call.json.get("limit", 1))
    return Reply(body={"jobs": [_job(job) for job in jobs]})


def report(call: ComputeCall, job_id: str) -> Reply:
    body = call.json
    call.service.agents.report(job_id, Report(body["state"], body["epoch"], body.get("result") or {}))
    return Reply(204)


def _job(job: Job) -> dict[str, object]:
    return {
        "id": job.id,
        "kind": job.kind,
        "key": job.key,
        "epoch": job.epoch,
        "attempt": job.attempt,
        "payload": job.payload,
    }
