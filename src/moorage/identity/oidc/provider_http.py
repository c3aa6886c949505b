"""Requests to the provider, bounded: in time, in size, and in how many threads wait for it at once.

So a provider that hangs, or answers without end, keeps at most `MAX_AT_ONCE` threads of the server waiting; everybody
else still signs in with a password. Redirects are not followed and compressed answers are refused.
"""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

import httpx

from moorage.core.errors import Unavailable
from moorage.wire.transports import trusted_authorities

#: Bound of an answer. Metadata and keys of large providers have 5 to 30 KB.
MAX_ANSWER_BYTES = 512 * 1024

MAX_AT_ONCE = 4


class ClientAuthentication(Protocol):
    """Authlib's ``ClientAuth``."""

    def prepare(self, method: str, uri: str, headers: dict[str, str], body: str) -> tuple[str, dict[str, str], str]: ...


class ProviderHttp:
    """Also the session of Authlib's ``OAuth2Client``, which calls `post`. Thread-safe."""

    def __init__(self, timeout_s: float, ca_file: Path | None) -> None:
        """Raises `StartError` for an unusable `ca_file`."""
        self._timeout_s = timeout_s
        self._slots = threading.BoundedSemaphore(MAX_AT_ONCE)
        # trust_env=False, as between services: a proxy in the environment is not meant for these requests.
        self._http = httpx.Client(timeout=timeout_s, trust_env=False, verify=trusted_authorities(ca_file))

    def get_json(self, url: str) -> Mapping[str, Any]:
        """The JSON object at `url`. Raises `Unavailable`."""
        answer = self._send("GET", url, {"accept": "application/json"}, None)
        if answer.status_code != 200:
            raise Unavailable(f"{url} answered {answer.status_code}", url=url)
        try:
            document = answer.json()
        except ValueError as error:
            raise Unavailable(f"{url} answered something other than JSON", url=url) from error
        if not isinstance(document, dict):
            raise Unavailable(f"{url} answered JSON that is not an object", url=url)
        return document

    def post(
        self,
        url: str,
        *,
        data: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        auth: ClientAuthentication | None = None,
    ) -> httpx.Response:
        """Sends a form. Raises `Unavailable`, also for a status of the provider's own failure."""
        sent = {
            "accept": "application/json",
            **(headers or {}),
            "Content-Type": "application/x-www-form-urlencoded",
        }
        body = urlencode(data)
        if auth is not None:
            url, sent, body = auth.prepare("POST", url, sent, body)
        answer = self._send("POST", url, sent, body.encode())
        if answer.status_code >= 500:
            raise Unavailable(f"{url} answered {answer.status_code}", url=url)
        return answer

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> httpx.Response:
        if not self._slots.acquire(blocking=False):
            raise Unavailable("the provider is slow and too many sign-ins wait for it; try again in a minute", url=url)
        until = time.monotonic() + self._timeout_s
        try:
            sent = {**headers, "accept-encoding": "identity"}
            with self._http.stream(method, url, headers=sent, content=body) as answer:
                return httpx.Response(answer.status_code, content=_bounded(answer, url, until), request=answer.request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"{url} does not answer: {str(error) or type(error).__name__}", url=url) from error
        finally:
            self._slots.release()


def _bounded(answer: httpx.Response, url: str, until: float) -> bytes:
    """The body. Raises `Unavailable` if it is longer than `MAX_ANSWER_BYTES`, compressed, or slower than `until`."""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise Unavailable(f"{url} sent a compressed answer, which was not asked for", url=url)
    body = bytearray()
    for chunk in answer.iter_raw():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise Unavailable(f"{url} sent more than {MAX_ANSWER_BYTES:,} bytes", url=url)
        if time.monotonic() > until:
            raise Unavailable(f"{url} sends too slowly", url=url)
    return bytes(body)
