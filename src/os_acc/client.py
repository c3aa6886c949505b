"""The client of the accelerator agent of this host: `initialize`, `plug` and `unplug` as HTTP requests."""

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from moorage.core.clock import Clock, SystemClock
from moorage.core.errors import Unavailable
from moorage.default_paths import default_os_acc_sockets
from moorage.wire.transports import ClientResponse, SocketTransport, Transport, outgoing_request_id
from os_acc.exception import BY_CODE, BadRequest, CyborgAgentUnavailable, OsAccException, Timeout

SOCKET_VARIABLE = "OS_ACC_SOCKET"

#: Longer than any known programming takes, shorter than compute waits for a build.
CALL_TIMEOUT_S = 290.0
#: How long `initialize` retries while the agent does not answer.
CONTACT_TIMEOUT_S = 10.0
#: How long `initialize` waits for an agent that answers but is not ready.
READY_TIMEOUT_S = 300.0

_POLL_S = 5.0
_RETRY_PAUSE_S = 0.2


class Client:
    """Thread-safe. `transport` connects to `moorage.accelerator.host.agent_api`, over a socket or in process."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock | None = None,
        contact_timeout_s: float = CONTACT_TIMEOUT_S,
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        self._transport = transport
        self._clock = clock or SystemClock()
        self._contact_timeout_s = contact_timeout_s
        self._ready_timeout_s = ready_timeout_s

    def initialize(self) -> None:
        begin = self._clock.now()
        answered = begin
        while True:
            try:
                if self._ask("GET", f"/v1/ready?wait_s={_POLL_S}", None, "")["ready"]:
                    return
                answered = self._clock.now()
            except CyborgAgentUnavailable:
                if (self._clock.now() - answered).total_seconds() >= self._contact_timeout_s:
                    raise
            if (self._clock.now() - begin).total_seconds() >= self._ready_timeout_s:
                raise Timeout(f"the accelerator agent is still not ready after {self._ready_timeout_s:.0f} s")
            self._clock.sleep(_RETRY_PAUSE_S)

    def plug(
        self,
        instance_info: Mapping[str, object],
        selected_rp: Mapping[str, str | Sequence[str]],
        flavor_extra_specs: Mapping[str, str],
    ) -> list[dict[str, str]]:
        body = {
            "instance_info": instance_info,
            "selected_rp": selected_rp,
            "flavor_extra_specs": flavor_extra_specs,
        }
        answer = self._ask("POST", "/v1/plug", body, _uuid_of(instance_info))
        return [dict(device) for device in answer["devices"]]

    def unplug(self, instance_info: Mapping[str, object]) -> int:
        body = {"instance_info": instance_info}
        return int(self._ask("POST", "/v1/unplug", body, _uuid_of(instance_info))["released"])

    def _ask(self, method: str, path: str, body: object, instance_uuid: str) -> Any:
        """Returns the decoded body of a 200 answer; raises otherwise."""
        headers = {"accept": "application/json", "content-type": "application/json"}
        if request_id := outgoing_request_id():
            headers["x-openstack-request-id"] = request_id
        try:
            raw = None if body is None else orjson.dumps(_plain(body))
        except (TypeError, RecursionError) as error:
            raise BadRequest(
                f"the parameters contain a value that JSON cannot represent: {error}", instance_uuid
            ) from error
        try:
            answer = self._transport.send(method, path, headers, raw)
        except Unavailable as error:
            import httpx  # imported late: it takes a twentieth of the start of a plane with an in-process agent

            if isinstance(error.__cause__, httpx.ReadTimeout | httpx.WriteTimeout):
                raise Timeout(
                    f"the accelerator agent did not answer in time: {error.message}", instance_uuid
                ) from error
            raise CyborgAgentUnavailable(f"the accelerator agent: {error.message}", instance_uuid) from error
        if answer.status != 200:
            raise _refusal(answer, instance_uuid)
        return orjson.loads(answer.body)


def _refusal(answer: ClientResponse, instance_uuid: str) -> OsAccException:
    try:
        error = orjson.loads(answer.body)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        code, message = "", f"the accelerator agent answered {answer.status}: {answer.body[:200]!r}"
    if answer.status == 400 and code not in BY_CODE:
        return BadRequest(message, instance_uuid)
    return BY_CODE.get(code, OsAccException)(message, instance_uuid)


def _plain(value: object) -> object:
    """Copy `value` with plain dicts and lists, as JSON needs them. `value` is not modified."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return value


def _uuid_of(instance_info: object) -> str:
    if not isinstance(instance_info, Mapping):
        return ""
    return str(instance_info.get("uuid") or instance_info.get("instance_uuid") or "")


class _FirstSocket:
    """A transport to the first of `paths` that exists. Looks at each request: the agent may start later than its
    callers.
    """

    def __init__(self, paths: Sequence[Path], timeout_s: float) -> None:
        self._paths = paths
        self._timeout_s = timeout_s
        self._transports: dict[Path, Transport] = {}
        self._lock = threading.Lock()

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None = None
    ) -> ClientResponse:
        return self._transport().send(method, path, headers, body)

    def stream(self, method: str, path: str, headers: Mapping[str, str]) -> Any:
        return self._transport().stream(method, path, headers)

    def _transport(self) -> Transport:
        socket = next((path for path in self._paths if path.exists()), None)
        if socket is None:
            raise Unavailable(
                f"no agent listens at {', '.join(map(str, self._paths))}; start it, or set {SOCKET_VARIABLE} to the "
                "socket that [accelerator] agent_socket of its configuration names"
            )
        with self._lock:
            if socket not in self._transports:
                self._transports[socket] = SocketTransport(
                    "http://localhost", timeout_s=self._timeout_s, unix_socket=str(socket)
                )
            return self._transports[socket]


_lock = threading.Lock()
_configured: Client | None = None


def configure(
    socket_path: str | None = None,
    *,
    transport: Transport | None = None,
    clock: Clock | None = None,
    call_timeout_s: float = CALL_TIMEOUT_S,
    contact_timeout_s: float = CONTACT_TIMEOUT_S,
    ready_timeout_s: float = READY_TIMEOUT_S,
) -> None:
    """Set the agent of this process: at `socket_path`, or behind `transport` (an agent in the same process). Without
    both, the environment variable ``OS_ACC_SOCKET`` counts, or the socket of an agent with default settings.
    """
    global _configured  # noqa: PLW0603 - the spec's three functions take no connection
    path = socket_path or os.environ.get(SOCKET_VARIABLE)
    paths = [Path(path)] if path else default_os_acc_sockets()
    reach = transport or _FirstSocket(paths, call_timeout_s)
    client = Client(reach, clock=clock, contact_timeout_s=contact_timeout_s, ready_timeout_s=ready_timeout_s)
    with _lock:
        _configured = client


def configured() -> Client:
    """The client of the module's functions. Without `configure`, uses the environment variable or a default path."""
    if _configured is None:
        configure()
    with _lock:
        if _configured is None:
            raise AssertionError("configure() sets it")
        return _configured
