"""The scheduler's explanations, over compute's own routes."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from moorage.wire.client import ServiceClient


class ExplainClient:
    """`http` addresses the root of the compute service."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def new_server(self, server: Mapping[str, Any], hints: Mapping[str, str]) -> dict[str, Any]:
        """`server`: as in the body of ``POST /servers``, of which ``flavorRef`` is needed; `hints` may have ``group``.
        The answer: see `moorage.compute.api.handlers.explanations`.
        """
        body = {"server": dict(server), "os:scheduler_hints": dict(hints)}
        return dict(self._http.request("POST", "/moorage/v1/explain-server", json=body)["explanation"])

    def server(self, server_id: str) -> dict[str, Any]:
        return dict(self._http.get(f"/moorage/v1/servers/{quote(server_id, safe='')}/explanation")["explanation"])
