"""Provider configuration of a host; not part of Nova's API.

POST /moorage/v1/hosts/{host}/provider-config       ``{"do": "show", "plan" or "apply", "files": {NAME: TEXT}}`` -> 202
GET  /moorage/v1/hosts/{host}/provider-config/{id}  ``{"order": {"id", "do", "files", "state", "at", "finished_at", "result"}}``

`state` is waiting, done or failed; `result` of one that is done ``{"state": STATE, "outcome": OUTCOME or null}`` as in
`moorage.agent.control.control_api`, of one that failed ``{"error", "code"}``.
"""

from typing import Any

from moorage.compute.api.handlers.views import ComputeRequest
from moorage.jobs.model import OPEN, Job, JobState
from moorage.wire.http import Response


def order(request: ComputeRequest, host: str) -> Response:
    body = request.json
    job = request.service.provider_configs.order(host, body["do"], body.get("files", {}), request.request_id)
    return Response(202, {"order": _view(job)})


def show(request: ComputeRequest, host: str, order_id: str) -> Response:
    return Response(body={"order": _view(request.service.provider_configs.answer(host, order_id))})


def _view(job: Job) -> dict[str, Any]:
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
