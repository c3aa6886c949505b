"""The client of an operator's enforcement service, with the same requests and answers as Blazar.

    POST <base>/check-create   {"context", "lease"}                   204: allowed
    POST <base>/check-update   {"context", "current_lease", "lease"}  403 {"message"}: refused with this message
    POST <base>/on-end         {"context", "lease"}                   the answer is ignored

Source: Blazar 18, external_service_filter.py. If the service does not answer in time, requests fail with 503.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import orjson

from moorage.core.errors import Invalid, Unavailable
from moorage.core.json import Json
from moorage.reservation.capacity import host_selection
from moorage.reservation.model.leases import Lease, RegisteredHost
from moorage.wire.transports import ClientResponse, SocketTransport

log = logging.getLogger(__name__)

DENIED = "External service enforcement filter denied the request."

#: Blazar has no timeout.
TIMEOUT_S = 10.0


class ExternalService:
    """An empty endpoint defaults to its name below `base`. If `base` is empty too, the endpoint is not called."""

    def __init__(
        self,
        base: str,
        *,
        check_create: str,
        check_update: str,
        on_end: str,
        token: str,
        region: str,
        auth_url: str,
        ca_file: Path | None = None,
    ) -> None:
        self._create, self._update, self._end = (
            endpoint or (urljoin(base, name) if base else "")
            for endpoint, name in ((check_create, "check-create"), (check_update, "check-update"), (on_end, "on-end"))
        )
        self._token = token
        self._ca_file = ca_file
        self._context = {"region_name": region, "auth_url": auth_url}

    def check_create(self, lease: Lease, plan: host_selection.Plan, hosts: Mapping[int, RegisteredHost]) -> None:
        """Raises `Invalid` with the service's message, `Unavailable` if it does not answer."""
        if self._create:
            self._agreed(self._create, lease, {"lease": _document(lease, plan, hosts)})

    def check_update(
        self,
        before: Lease,
        held: host_selection.Plan,
        after: Lease,
        plan: host_selection.Plan,
        hosts: Mapping[int, RegisteredHost],
    ) -> None:
        if self._update:
            documents = {"current_lease": _document(before, held, hosts), "lease": _document(after, plan, hosts)}
            self._agreed(self._update, before, documents)

    def on_end(self, lease: Lease, held: host_selection.Plan, hosts: Mapping[int, RegisteredHost]) -> None:
        """Only logs failures, like Blazar: a lease always ends."""
        if not self._end:
            return
        try:
            self._post(self._end, lease, {"lease": _document(lease, held, hosts)})
        except Unavailable as error:
            log.warning(
                "could not notify the enforcement service of the end of a lease", extra={"reason": error.message}
            )

    def _agreed(self, url: str, lease: Lease, documents: Mapping[str, Json]) -> None:
        try:
            answer = self._post(url, lease, documents)
        except Unavailable as error:
            log.error("the enforcement service does not answer", extra={"reason": error.message})
            raise Unavailable("the enforcement service that checks leases does not answer; try again later") from None
        if answer.status == 204:
            return
        if answer.status != 403:
            log.warning("the enforcement service answered with an unexpected status", extra={"status": answer.status})
        raise Invalid(_message(answer) if answer.status == 403 else DENIED)

    def _post(self, url: str, lease: Lease, documents: Mapping[str, Json]) -> ClientResponse:
        headers = {"content-type": "application/json"} | ({"x-auth-token": self._token} if self._token else {})
        context = {"user_id": lease.user_id, "project_id": lease.project_id, **self._context}
        body = orjson.dumps({"context": context, **documents})
        return SocketTransport(url, timeout_s=TIMEOUT_S, ca_file=self._ca_file).send("POST", "", headers, body)


def _message(answer: ClientResponse) -> str:
    try:
        return str(orjson.loads(answer.body)["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return DENIED


def _document(lease: Lease, plan: host_selection.Plan, hosts: Mapping[int, RegisteredHost]) -> dict[str, Json]:
    dates = {name: _date(getattr(lease, name)) for name in ("start_date", "end_date", "created_at", "updated_at")}
    return {
        "id": lease.id,
        "name": lease.name,
        "user_id": lease.user_id,
        "project_id": lease.project_id,
        "status": lease.status,
        "trust_id": lease.trust_id,
        "degraded": lease.degraded,
        **dates,
        "reservations": [
            {
                "id": each.id,
                "resource_type": each.resource_type,
                **_flat(asdict(each.request)),
                "allocations": [_host(hosts[host]) for host in _on(plan.get(each.id, {})) if host in hosts],
            }
            for each in lease.reservations
        ],
    }


def _date(moment: datetime | None) -> str | None:
    """The format of Blazar: UTC, without a zone."""
    return None if moment is None else moment.replace(tzinfo=None).isoformat()


def _on(placing: host_selection.Placing) -> Iterable[int]:
    """The host of each slot: a host with n slots appears n times."""
    return (host for host, slots in placing.items() for _ in slots)


def _host(host: RegisteredHost) -> dict[str, Any]:
    return {**host.properties(), "vcpus": host.vcpus, "memory_mb": host.memory_mb, "local_gb": host.local_gb}


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The request with the names of the API, and with the fields of `size` at the top level."""
    flat = {name: value for name, value in values.items() if name != "size"} | values.get("size", {})
    return {{"least": "min", "most": "max"}.get(name, name): value for name, value in flat.items()}
