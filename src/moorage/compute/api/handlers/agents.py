"""The API of host agents, and operators' orders to them; not part of Nova's API.

PUT  /agent/v1/hosts/{host}        register the host, or send its heartbeat
POST /agent/v1/hosts/{host}/jobs   ``{"worker", "limit"}`` -> its next jobs
GET  /agent/v1/hosts/{host}/servers  its servers, with a mark that changes when they do
GET  /agent/v1/hosts/{host}/servers/{id}  ``{"server": {"id", "name", "status", "unplugged_ports": [ID]}}``: one of
                                   them, with the ports that a Neutron still has to connect; with ``refresh=true``
                                   it is asked
PUT  /agent/v1/hosts/{host}/servers/{id}/ports/{id}  ``{"address", "physical_network"}``: bind a port of one of them to
                                   this device of the host -> ``{"interface"}``, as in the host's jobs; null: it is gone
POST /agent/v1/hosts/{host}/servers/{id}/reboot  start one of them again after the host was down, as an operator would
PUT  /agent/v1/hosts/{host}/domains  ``{"domains": {id: {"mark", "power"}}, "consoles": {id: text}}``: observations
PUT  /agent/v1/hosts/{host}/device-faults  ``{"servers": {id: [TEXT]}}``: all servers with failed devices
PUT  /agent/v1/jobs/{id}           ``{"epoch", "state", "result"}``: report on a job -> ``{"more"}``: whether the host
                                   may have other jobs
PUT  /agent/v1/hosts/{host}/images/{id}/file  the disk of a server, as an image: see `moorage.images.for_hosts`

POST /moorage/v1/hosts/{host}/provider-config       ``{"do": "show", "plan" or "apply", "files": {NAME: TEXT}}`` -> 202
GET  /moorage/v1/hosts/{host}/provider-config/{id}
                                   ``{"order": {"id", "do", "files", "state", "at", "finished_at", "result"}}``

The `state` of an order is waiting, done or failed. The `result` of a done one is ``{"state": STATE, "outcome": OUTCOME
or null}`` as in `moorage.agent.control`, of a failed one ``{"error", "code"}``.
"""

from dataclasses import replace

import msgspec

from moorage.compute.agents.disk_image_service import ServerDisk
from moorage.compute.agents.domain_service import DomainReport
from moorage.compute.api.handlers.views import ComputeRequest, parse_amount
from moorage.compute.model import lifecycle
from moorage.compute.model.job_payloads import interface_payload
from moorage.compute.model.servers import HostReport
from moorage.core.errors import Invalid
from moorage.core.json import Json
from moorage.images.for_hosts import DISK_HEADER, read_chunks
from moorage.jobs.contract import PortDevice
from moorage.jobs.job_api import claim_document, report_of
from moorage.jobs.model import OPEN, Job, JobState
from moorage.wire.http import Response


def register_host(request: ComputeRequest, host: str) -> Response:
    body = request.json
    report = HostReport(
        name=host,
        provider_uuid=body["provider_uuid"],
        hypervisor_type=body["hypervisor_type"],
        hypervisor_version=parse_amount(body.get("hypervisor_version", 0), "hypervisor_version"),
        host_ip=body.get("host_ip", ""),
        vcpus=body["vcpus"],
        memory_mb=body["memory_mb"],
        local_gb=body["local_gb"],
        devices=body.get("devices", 0),
        cpu_info=body.get("cpu_info", {}),
        capabilities=tuple(body.get("capabilities", ())),
    )
    request.service.agents.register_host(report, by=request.caller.host)
    return Response(204)


def claim_jobs(request: ComputeRequest, host: str) -> Response:
    agents = request.service.agents
    jobs = agents.claim_jobs(host, request.json["worker"], request.json.get("limit", 1))
    return Response(body=claim_document(jobs, agents.may_have_more))


def expected_servers(request: ComputeRequest, host: str) -> Response:
    servers = request.service.domains.expected_servers(host)
    return Response(body={"servers": [{"id": server.id, "mark": server.mark} for server in servers]})


def server_on_host(request: ComputeRequest, host: str, server_id: str) -> Response:
    found = request.service.domains.server_on_host(host, server_id)
    refresh = request.query.first("refresh") == "true"
    unplugged: list[Json] = list(request.service.plugging.unplugged_ports(found, refresh=refresh))
    status = lifecycle.status(found.vm_state, found.task_state)
    shown: dict[str, Json] = {"id": found.id, "name": found.name, "status": status, "unplugged_ports": unplugged}
    return Response(body={"server": shown})


def bind_device(request: ComputeRequest, host: str, server_id: str, port_id: str) -> Response:
    device = PortDevice(request.json["address"], request.json["physical_network"])
    bound = request.service.plugging.bind_device(host, server_id, port_id, device)
    shown = None if bound is None else msgspec.to_builtins(interface_payload(bound))
    return Response(body={"interface": shown})


def reboot_server(request: ComputeRequest, host: str, server_id: str) -> Response:
    """Acts for the server's project, because a host has none."""
    found = request.service.domains.server_on_host(host, server_id)
    caller = replace(request.caller, project_id=found.project_id, roles=frozenset({"service"}), host=None)
    request.service.operations.begin_operation(caller, request.request_id, server_id, lifecycle.REBOOT_HARD)
    return Response(202)


def report_domains(request: ComputeRequest, host: str) -> Response:
    domains = request.json["domains"].items()
    reports = [DomainReport(server_id, row["mark"], row["power"]) for server_id, row in domains]
    request.service.domains.report_domains(host, reports, request.json.get("consoles", {}))
    request.service.domains.report_addresses(host, request.json.get("addresses", {}))
    return Response(204)


def report_device_faults(request: ComputeRequest, host: str) -> Response:
    request.service.domains.report_devices(host, request.json["servers"])
    return Response(204)


def report_job(request: ComputeRequest, job_id: str) -> Response:
    has_more = request.service.agents.report_job(job_id, report_of(request.json), host=request.caller.host)
    return Response(body={"more": has_more})


def order_provider_config(request: ComputeRequest, host: str) -> Response:
    body = request.json
    job = request.service.provider_configs.order_provider_config(
        host, body["do"], body.get("files", {}), request.request_id
    )
    return Response(202, {"order": _order_document(job)})


def show_provider_config_order(request: ComputeRequest, host: str, order_id: str) -> Response:
    return Response(body={"order": _order_document(request.service.provider_configs.find_order(host, order_id))})


def _order_document(job: Job) -> dict[str, Json]:
    is_open = job.state in OPEN
    return {
        "id": job.id,
        "host": job.queue,
        "do": job.payload["do"],
        "files": job.payload["files"],
        "state": "waiting" if is_open else "done" if job.state is JobState.DONE else "failed",
        "at": job.created_at.isoformat(),
        "finished_at": None if job.finished_at is None else job.finished_at.isoformat(),
        "result": None if is_open else job.result or {},
    }


class _Disk(msgspec.Struct):
    disk_format: str
    properties: dict[str, str] = {}


def upload_disk_image(request: ComputeRequest, host: str, image_id: str) -> Response:
    length = request.headers.get("content-length", "")
    if not length.isdecimal():
        raise Invalid("the header Content-Length is missing or is not a number; send the size of the disk in bytes")
    try:
        disk = msgspec.json.decode(request.headers.get(DISK_HEADER, "{}"), type=_Disk)
    except msgspec.DecodeError as error:
        raise Invalid(f"the header {DISK_HEADER} cannot be read: {error}") from error
    found = ServerDisk(disk.disk_format, disk.properties, int(length))
    request.service.disk_images.upload_disk_image(host, image_id, found, read_chunks(request))
    return Response(204)


def withdraw_disk_image(request: ComputeRequest, host: str, image_id: str) -> Response:
    request.service.disk_images.withdraw_image(host, image_id)
    return Response(204)
