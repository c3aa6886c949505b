"""A small HTTP/1.1 client that sends exactly the given request.

gabbi 4 sends its requests with httpx, which always adds ``Accept: */*``, adds ``Content-Length: 0`` to a PUT or POST
without a body, and refuses to send a malformed ``Content-Length``. Three tests of the suite check exactly these cases.
"""

import http.client
import json
import urllib.parse
from collections.abc import Collection, Mapping
from typing import ClassVar

#: Not escaped in a request target: all that is legal in a URL, and "%", because targets are percent-encoded already.
_TARGET_SAFE = "%/?:@!$&'()*+,;=-._~[]#"


class Headers(dict):
    """The headers of an answer: names in lower case, repeated ones joined by commas."""

    @classmethod
    def of(cls, message: Mapping[str, str]) -> "Headers":
        headers = cls()
        for name, value in message.items():
            known = headers.get(name.lower())
            headers[name.lower()] = f"{known}, {value}" if known is not None else value
        return headers


def send(
    url: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None, timeout=30.0
) -> tuple[int, str, Headers, bytes]:
    """(status, reason, headers, body) of one request on a connection of its own."""
    headers = dict(headers or {})
    names = {name.lower() for name in headers}
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.putrequest(
            method,
            urllib.parse.quote(target, safe=_TARGET_SAFE),
            skip_host="host" in names,
            skip_accept_encoding=True,
        )
        for name, value in headers.items():
            connection.putheader(name, str(value))
        if body and "content-length" not in names:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body or None)
        response = connection.getresponse()
        content = response.read()
        return response.status, response.reason, Headers.of(response.headers), content
    finally:
        connection.close()


class GabbiClient:
    """The interface of an HTTP client that gabbi uses."""

    #: Every exchange is appended to this list, unless it is None.
    record: ClassVar[list[dict] | None] = None

    def __init__(self, caption: str | None = None, **_ignored: object) -> None:
        self._test = caption

    def request(self, absolute_uri, method, body, headers, redirect, timeout):
        if redirect:
            raise NotImplementedError("no file of the suite follows redirects")
        status, reason, answer, content = send(absolute_uri, method, headers, body, float(timeout))
        if self.record is not None:
            parts = urllib.parse.urlsplit(absolute_uri)
            self.record.append(
                {
                    "test": self._test,
                    "method": method,
                    "target": parts.path + (f"?{parts.query}" if parts.query else ""),
                    "headers": {name.lower(): str(value) for name, value in headers.items()},
                    "body": (body or b"").decode(errors="replace"),
                    "status": status,
                    "response_headers": dict(answer),
                    "response_body": content.decode(errors="replace"),
                }
            )
            content = _in_one_order(content)
        answer["status"] = str(status)
        answer["reason"] = reason
        return answer, content


def _in_one_order(content: bytes) -> bytes:
    """Sorts candidates: some tests continue with the first one, and the two servers must get the same requests."""
    if b'"allocation_requests"' not in content:
        return content
    document = json.loads(content)
    document["allocation_requests"].sort(key=lambda candidate: json.dumps(candidate, sort_keys=True))
    return json.dumps(document).encode()


class ApiError(RuntimeError):
    """The server under test refused a request that prepares the state for a file."""


class Api:
    """Requests to placement with an admin's token and an explicit microversion."""

    def __init__(self, base: str) -> None:
        self._base = base.rstrip("/")

    def __call__(self, method: str, path: str, version: str, data=None, ok: Collection[int] = (200, 201, 204)):
        """The document of the answer, or None. Raises `ApiError` if its status is not in `ok`."""
        headers = {
            "x-auth-token": "admin",
            "accept": "application/json",
            "openstack-api-version": f"placement {version}",
        }
        body = None
        if data is not None:
            headers["content-type"] = "application/json"
            body = json.dumps(data).encode()
        status, _, _, content = send(self._base + path, method, headers, body)
        if status not in ok:
            raise ApiError(f"{method} {path} ({version}): {status} {content[:500].decode(errors='replace')}")
        return json.loads(content) if content and status in (200, 201) else None
