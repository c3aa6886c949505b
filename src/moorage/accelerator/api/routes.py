"""The Accelerator API v2: its route table, its policy rules, and Cyborg's shape of errors.

Paths are below the mount (``/accelerator``). Two prefixes are not part of Cyborg's API: ``/agent/v1`` for the agents
of hosts, and ``/moorage/v1`` for the history, handles, bitstreams and pages of requests.
"""

import json
from dataclasses import replace

from moorage.accelerator.api import schemas
from moorage.accelerator.api.handlers import agents, devices, history, requests, versions
from moorage.accelerator.model.errors import UNCHECKED
from moorage.accelerator.service.service import AcceleratorService
from moorage.identity.policy import RuleTable, admin, agent, has_role, member, reader
from moorage.images.for_hosts import HostImages, image_routes
from moorage.jobs import job_api
from moorage.jobs.job_api import agent_route
from moorage.wire.app import ServiceApi
from moorage.wire.errors import Problem
from moorage.wire.http import Response, Route

Routes = tuple[Route[AcceleratorService], ...]

AGENT_RULE = "moorage:agent"

#: The history names the servers of all projects, so only operators may read it.
HISTORY_RULE = "moorage:history"

_operator_or_service = has_role("manager", "service")

#: Cyborg's rule names, with its new defaults for reading and writing.
RULES = RuleTable(
    {
        "cyborg:device:get_all": _operator_or_service,
        "cyborg:device:get_one": _operator_or_service,
        "cyborg:device:enable": admin,
        "cyborg:device:disable": admin,
        "cyborg:deployable:get_all": _operator_or_service,
        "cyborg:deployable:get_one": _operator_or_service,
        "cyborg:deployable:program": admin,
        "cyborg:attribute:get_all": _operator_or_service,
        "cyborg:attribute:get_one": _operator_or_service,
        "cyborg:attribute:create": admin,
        "cyborg:attribute:delete": admin,
        "cyborg:device_profile:get_all": reader,
        "cyborg:device_profile:get_one": reader,
        "cyborg:device_profile:create": admin,
        "cyborg:device_profile:delete": admin,
        "cyborg:arq:get_all": reader,
        "cyborg:arq:get_one": reader,
        "cyborg:arq:create": member,
        "cyborg:arq:update": member,
        "cyborg:arq:delete": member,
        AGENT_RULE: agent,
        HISTORY_RULE: admin,
    }
)


def error_shape(problem: Problem) -> Response:
    """JSON in a JSON string, which Cyborg sends and openstacksdk reads."""
    fault = {
        "faultcode": "Client" if problem.status < 500 else "Server",
        "faultstring": problem.message,
        "debuginfo": None,
    }
    return Response(problem.status, {"error_message": json.dumps(fault)})


def legacy_error_shape(problem: Problem) -> Response:
    """As `error_shape`, but with a 500 where Cyborg does not check the request: Cyborg's Tempest plugin expects
    that.
    """
    return error_shape(replace(problem, status=500) if problem.code == UNCHECKED else problem)


_PUBLIC: Routes = (
    Route("GET", "/", versions.root, rule=None),
    Route("GET", "/v2", versions.version, rule=None),
    Route("GET", "/v2/", versions.version, rule=None),
)

_RESOURCES: Routes = (
    Route("GET", "/v2/devices", devices.list_devices, rule="cyborg:device:get_all"),
    Route("GET", "/v2/devices/{uuid}", devices.show_device, rule="cyborg:device:get_one"),
    Route("GET", "/v2/deployables", devices.list_deployables, rule="cyborg:deployable:get_all"),
    Route("GET", "/v2/deployables/{uuid}", devices.show_deployable, rule="cyborg:deployable:get_one"),
    Route("GET", "/v2/accelerator_requests", requests.list_requests, rule="cyborg:arq:get_all"),
    Route("GET", "/v2/accelerator_requests/{uuid}", requests.show_request, rule="cyborg:arq:get_one"),
    Route(
        "POST",
        "/v2/accelerator_requests",
        requests.create_requests,
        rule="cyborg:arq:create",
        schema=schemas.CREATE_REQUESTS,
    ),
    Route(
        "PATCH",
        "/v2/accelerator_requests",
        requests.patch_requests,
        rule="cyborg:arq:update",
        schema=schemas.PATCH_REQUESTS,
    ),
    Route(
        "PATCH",
        "/v2/accelerator_requests/{uuid}",
        requests.patch_request,
        rule="cyborg:arq:update",
        schema=schemas.PATCH_REQUESTS,
    ),
    Route(
        "DELETE",
        "/v2/accelerator_requests",
        requests.delete_requests,
        rule="cyborg:arq:delete",
        ids_in_query=("arqs", "instance"),
    ),
    Route("DELETE", "/v2/accelerator_requests/{uuid}", requests.delete_request, rule="cyborg:arq:delete"),
    Route("GET", "/v2/device_profiles", requests.list_profiles, rule="cyborg:device_profile:get_all"),
    Route(
        "POST",
        "/v2/device_profiles",
        requests.create_profile,
        rule="cyborg:device_profile:create",
        schema=schemas.CREATE_DEVICE_PROFILE,
    ),
    Route(
        "DELETE",
        "/v2/device_profiles",
        requests.delete_profiles,
        rule="cyborg:device_profile:delete",
        ids_in_query=("value",),
    ),
    Route("GET", "/v2/device_profiles/{name_or_uuid}", requests.show_profile, rule="cyborg:device_profile:get_one"),
    Route("DELETE", "/v2/device_profiles/{name_or_uuid}", requests.delete_profile, rule="cyborg:device_profile:delete"),
)

_OPERATOR: Routes = (
    Route("POST", "/v2/devices/{uuid}/enable", devices.enable_device, rule="cyborg:device:enable"),
    Route("POST", "/v2/devices/{uuid}/disable", devices.disable_device, rule="cyborg:device:disable"),
    Route(
        "PATCH",
        "/v2/deployables/{uuid}/program",
        devices.program_deployable,
        rule="cyborg:deployable:program",
        schema=schemas.PROGRAM,
    ),
    Route("GET", "/v2/attributes", devices.list_attributes, rule="cyborg:attribute:get_all"),
    Route("GET", "/v2/attributes/{uuid}", devices.show_attribute, rule="cyborg:attribute:get_one"),
    Route(
        "POST",
        "/v2/attributes",
        devices.create_attribute,
        rule="cyborg:attribute:create",
        schema=schemas.CREATE_ATTRIBUTE,
    ),
    Route("DELETE", "/v2/attributes/{uuid}", devices.delete_attribute, rule="cyborg:attribute:delete"),
)

_OWN: Routes = (
    Route("GET", "/moorage/v1/history", history.list_history, rule=HISTORY_RULE),
    Route("GET", "/moorage/v1/handles", history.list_handles, rule=HISTORY_RULE),
    Route(
        "POST",
        "/moorage/v1/handles/release",
        history.release_handle,
        rule="cyborg:device:enable",
        schema=schemas.RELEASE_HANDLE,
    ),
    Route("GET", "/moorage/v1/bitstreams", devices.list_bitstreams, rule="cyborg:deployable:program"),
    Route("GET", "/moorage/v1/accelerator_requests", requests.list_requests_page, rule="cyborg:arq:get_all"),
)


def host_images(service: AcceleratorService) -> HostImages:
    return service.images_for_hosts


_HOST = "/agent/v1/hosts/{host}"

_AGENT: Routes = (
    agent_route("POST", f"{_HOST}/epoch", agents.offer_epoch, AGENT_RULE, effect="routine"),
    agent_route("PUT", f"{_HOST}/devices", agents.put_devices, AGENT_RULE, schemas.DEVICES, effect="routine"),
    agent_route(
        "PUT", f"{_HOST}/attachments", agents.put_attachments, AGENT_RULE, schemas.ATTACHMENTS, effect="routine"
    ),
    agent_route("POST", f"{_HOST}/history", agents.post_history, AGENT_RULE, schemas.HISTORY, effect="routine"),
    agent_route("POST", f"{_HOST}/jobs", agents.claim_jobs, AGENT_RULE, job_api.CLAIM, effect="routine"),
    *image_routes(AGENT_RULE, host_images),
    agent_route("PUT", "/agent/v1/jobs/{job_id}", agents.report_job, AGENT_RULE, job_api.REPORT),
)

API: ServiceApi[AcceleratorService] = ServiceApi(
    name="accelerator",
    routes=(*_PUBLIC, *_RESOURCES, *_OPERATOR, *_OWN, *_AGENT),
    error_shape=error_shape,
    versions=versions.VERSIONS,
    schema_error_message=lambda error: error.message,
)
