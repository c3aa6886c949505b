"""Use cases of serial consoles: ask for one, open it with its token, and tell whether it may go on.

    create_console   a person asks: a row with the hash of a token  -> the URL with the token
    open_console     the proxy received the token: used up, recorded as an action of the server
    call_host        a job asks the server's agent to connect the guest to the proxy
    objection        the proxy asks every `CHECK_S` seconds whether the person may still have it
    end_console      the proxy reports the end

Not here: the bytes (`moorage.compute.console_proxy`), and the guest (`moorage.agent.jobs.console_jobs`).
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.hosts import HostService
from moorage.compute.model.servers import Action, Server, VmState
from moorage.compute.requests.server_service import visible
from moorage.compute.store import action_store, console_store, host_store, quota_store, server_store
from moorage.compute.store.console_store import ConsoleRow
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota
from moorage.db.session import in_transaction, read
from moorage.jobs.contract import ConsoleJob, JobKind, payload_document
from moorage.jobs.model import NewJob

SERIAL = "serial"
#: The capability that a host's agent reports, as `moorage.agent.virt.driver.Capability.CONSOLE`.
CAPABILITY = JobKind.CONSOLE.value

#: A token must be used within this time; it can be used once.
TOKEN_LIFETIME = timedelta(minutes=10)
#: An open console is checked this often. Its row, which counts for the limits, lasts `ROW_LIFETIME` after a check.
CHECK_S = 10.0
ROW_LIFETIME = timedelta(seconds=60)
#: A host's agent must connect within this time after a person has.
HOST_TIMEOUT_S = 20.0
#: Maximum number of unused tokens and open consoles of a server.
MAX_OF_SERVER = 8

#: States in which a server has a guest that can answer.
_WITH_CONSOLE = frozenset({VmState.ACTIVE, VmState.PAUSED, VmState.RESCUED, VmState.RESIZED})
_ACTION, _EVENT = "open_console", "compute_open_console"


@dataclass(frozen=True)
class OpenConsole:
    """A console whose token was used."""

    id: str
    server_id: str
    host: str
    user_id: str
    request_id: str


@dataclass(frozen=True)
class ConsoleService:
    deps: ComputeDeps
    settings: ComputeSettings
    hosts: HostService

    def create_console(self, caller: Caller, request_id: str, server_id: str, console_type: str) -> str:
        """Returns the URL of the console, with a token in it. Only its hash is kept.

        Raises `Invalid` for a type that this server has not, `Conflict` for a server that does not run, `OverQuota`.
        """
        token = secrets.token_urlsafe(32)
        now = self.deps.clock.now()

        def create(connection: Connection) -> str:
            console_store.delete_expired(connection, now)
            quota_store.lock_project(connection, caller.project_id)  # before a server, as everybody does
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            url = self._proxy_url(console_type)
            host = self._host_with_console(connection, server, console_type)
            self._check_limits(connection, server_id, caller.project_id)
            row = ConsoleRow(
                id=self.deps.ids.uuid(), token_hash=_hash(token), server_id=server_id, host=host,
                user_id=caller.user_id, project_id=caller.project_id, request_id=request_id, is_open=False,
                created_at=now, expires_at=now + TOKEN_LIFETIME,
            )  # fmt: skip
            console_store.insert_console(connection, row)
            return url

        url = in_transaction(self.deps.engine, create)
        return f"{url}?{urlencode({'token': token})}"

    def _proxy_url(self, console_type: str) -> str:
        if console_type != SERIAL:
            raise Invalid(
                f"Unavailable console type {console_type}. Servers have a serial console only; ask for type {SERIAL}.",
                code="compute.console_type",
            )
        if self.deps.console_url is None:
            raise Invalid(
                f"Unavailable console type {console_type}. This compute service runs no proxy for consoles; set "
                "[compute] consoles to on.",
                code="compute.console_type",
            )
        return self.deps.console_url()

    def _host_with_console(self, connection: Connection, server: Server, console_type: str) -> str:
        if server.host is None:
            raise Conflict(f"Instance {server.id} is not ready")
        if server.vm_state not in _WITH_CONSOLE:
            raise Conflict(
                f"Instance {server.id} is {server.vm_state}, so it has no console; start it first",
                code="compute.not_running",
            )
        host = host_store.host(connection, server.host)
        if host is None or CAPABILITY not in host.report.capabilities:
            raise Invalid(
                f"Unavailable console type {console_type}. The host of instance {server.id} offers no consoles: its "
                "driver has none, or its agent is of an older release.",
                code="compute.console_type",
            )
        if not self.hosts.is_up(host):
            raise Conflict(f"The host of instance {server.id} is down, so its console cannot be reached")
        return server.host

    def _check_limits(self, connection: Connection, server_id: str, project_id: str) -> None:
        if console_store.count_of_server(connection, server_id) >= MAX_OF_SERVER:
            raise OverQuota(
                f"Instance {server_id} has {MAX_OF_SERVER} consoles that are open or not used yet, the maximum; close "
                "one, or wait until unused ones expire, 10 minutes after their request"
            )
        most = self.settings.quota_consoles
        if 0 <= most <= console_store.count_of_project(connection, project_id):
            raise OverQuota(
                f"Quota exceeded for consoles: the project has {most} that are open or not used yet, the maximum"
            )

    def open_console(self, token: str) -> OpenConsole:
        """Uses the token up, and records the action. Raises `Forbidden` with one message whatever is wrong with the
        token, and a message of its own if the person or the server has changed since.
        """
        now = self.deps.clock.now()

        def use(connection: Connection) -> ConsoleRow:
            row = console_store.console_of_token(connection, _hash(token))
            if row is None or not console_store.use_token(connection, row.id, now, now + ROW_LIFETIME):
                raise Forbidden(
                    "this address of a console was used before, has expired or is wrong; open the console again",
                    code="compute.console_token",
                )
            return row

        row = in_transaction(self.deps.engine, use)  # also if it is refused below: an address works once
        if why := self.objection(row.id):
            self._delete(row.id)
            raise Forbidden(why, code="compute.console_refused")
        in_transaction(self.deps.engine, lambda connection: self._record_action(connection, row))
        return OpenConsole(row.id, row.server_id, row.host, row.user_id, row.request_id)

    def _record_action(self, connection: Connection, row: ConsoleRow) -> None:
        now = self.deps.clock.now()
        action = Action(row.id, row.server_id, row.request_id, _ACTION, row.user_id, row.project_id, now, now, None)
        action_store.begin_action(connection, action)
        action_store.begin_event(connection, action.id, _EVENT, row.host, now)

    def call_host(self, console: OpenConsole, url: str, secret: str) -> None:
        """Asks the agent to connect the console to the proxy at `url`."""
        now = self.deps.clock.now()
        payload = ConsoleJob(
            server_id=console.server_id,
            session_id=console.id,
            url=url,
            secret=secret,
            expires_at=(now + timedelta(seconds=HOST_TIMEOUT_S)).isoformat(),
            request_id=console.request_id,
        )
        # A key of its own: a console does not wait for operations on the server.
        job = NewJob(
            self.deps.ids.uuid(), console.host, JobKind.CONSOLE, f"console:{console.id}",
            payload_document(JobKind.CONSOLE, payload),
        )  # fmt: skip
        in_transaction(self.deps.engine, lambda connection: server_store.HOST_JOBS.enqueue(connection, job, now))
        self.deps.hints.send(console.host)

    def objection(self, console_id: str) -> str | None:
        """Why the console must end now; None: it may go on. Extends its row.

        Raises `Unavailable` if the identity service does not answer.
        """
        with read(self.deps.engine) as connection:
            row = console_store.console_row(connection, console_id)
            server = None if row is None else server_store.server(connection, row.server_id)
        if row is None:
            return "its server was deleted, or the proxy could not renew it in time"
        if server is None or server.vm_state in (VmState.DELETED, VmState.SOFT_DELETED):
            return "the server was deleted"
        if server.host != row.host:
            return "the server has left its host; open the console again"
        if server.vm_state not in _WITH_CONSOLE:
            return f"the server is {server.vm_state}"
        caller = self.deps.console_caller(row.user_id, row.project_id)
        try:
            if caller is None:
                raise NotFound(row.user_id)
            visible(server, caller, server.id)
        except NotFound:
            return "the person has no role in the project any more that allows a console"
        until = self.deps.clock.now() + ROW_LIFETIME
        in_transaction(self.deps.engine, lambda connection: console_store.extend_console(connection, console_id, until))
        return None

    def end_console(self, console: OpenConsole, error: str | None) -> None:
        """`error`: why the host could not be reached; None: the console was open."""

        def end(connection: Connection) -> None:
            console_store.delete_console(connection, console.id)
            action_store.finish_event(connection, console.id, _EVENT, self.deps.clock.now(), error=error)

        in_transaction(self.deps.engine, end)

    def _delete(self, console_id: str) -> None:
        in_transaction(self.deps.engine, lambda connection: console_store.delete_console(connection, console_id))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
