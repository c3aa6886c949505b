"""Reports and jobs of the hosts' agents. Not part of Cyborg's API."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TypeVar

import msgspec

from moorage.accelerator.model.device_history import HistoryRecord
from moorage.accelerator.model.reports import AttachmentReport, DeviceReport, ReportAnswer, ReportPosition
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.errors import Invalid
from moorage.jobs.job_api import claim_document, report_of
from moorage.wire.http import Request, Response

T = TypeVar("T")


def offer_epoch(request: Request[AcceleratorService], host: str) -> Response:
    return Response(body=asdict(request.service.offer_epoch(host)))


def put_devices(request: Request[AcceleratorService], host: str) -> Response:
    reports = _decoded(request.json["devices"], list[DeviceReport])
    return _answer(request.service.report_devices(host, reports, _position(request.json)))


def put_attachments(request: Request[AcceleratorService], host: str) -> Response:
    reports = _decoded(request.json["attachments"], list[AttachmentReport])
    return _answer(request.service.report_attachments(host, reports, _position(request.json)))


def _position(body: Mapping[str, int]) -> ReportPosition | None:
    return ReportPosition(body["epoch"], body["number"]) if "epoch" in body else None


def _answer(answer: ReportAnswer | None) -> Response:
    """An agent of the release before, which sends no position, expects 204."""
    return Response(204) if answer is None else Response(body=asdict(answer))


def post_history(request: Request[AcceleratorService], host: str) -> Response:
    try:
        records = msgspec.convert(request.json["records"], list[HistoryRecord])
    except msgspec.ValidationError as error:
        raise Invalid(f"the records cannot be read: {error}") from error
    request.service.history.write_records(host, records)
    return Response(204)


def claim_jobs(request: Request[AcceleratorService], host: str) -> Response:
    of_hosts = request.service.jobs.of_hosts
    jobs = of_hosts.claim_jobs(host, request.json["worker"], request.json.get("limit", 1))
    return Response(body=claim_document(jobs, of_hosts.may_have_more))


def report_job(request: Request[AcceleratorService], job_id: str) -> Response:
    has_more = request.service.jobs.of_hosts.report_job(job_id, report_of(request.json), host=request.caller.host)
    return Response(body={"more": has_more})


def _decoded(document: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"the report cannot be read: {error}") from error
