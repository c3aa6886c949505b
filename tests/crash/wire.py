"""One keep-alive connection to placement that never repeats a request by itself."""

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


class Lost(Exception):
    """There was no answer, so nobody knows whether the request was carried out."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: Any

    @property
    def reason(self) -> str:
        """The detail of a refusal."""
        return self.body["errors"][0]["detail"].partition("\n\n")[2].strip()


class Client:
    def __init__(self, url: str, timeout_s: float = 60.0) -> None:
        at = urlsplit(url)
        self._prefix = at.path
        self._connection = http.client.HTTPConnection(at.hostname, at.port, timeout=timeout_s)

    def send(self, method: str, path: str, body: object = None) -> Answer:
        headers = {"OpenStack-API-Version": "placement 1.39", "X-Auth-Token": "admin", "Accept": "application/json"}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            self._connection.request(method, self._prefix + path, content, headers)
            response = self._connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Lost(f"{method} {path}: {type(error).__name__} {error}") from error
        names = {name.lower(): value for name, value in response.getheaders()}
        is_json = names.get("content-type", "").startswith("application/json")
        return Answer(response.status, names, json.loads(raw) if is_json and raw else raw.decode())

    def get(self, path: str) -> Any:
        """The document of a successful answer."""
        answer = self.send("GET", path)
        if answer.status != 200:
            raise AssertionError(f"GET {path}: {answer}")
        return answer.body

    def close(self) -> None:
        self._connection.close()
