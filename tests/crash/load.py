"""Several clients that work until the server is gone: each sends its tenant's requests and records the answers."""

import threading
from collections.abc import Callable, Sequence

from tests.crash.model import ProviderState, Step
from tests.crash.tenants import SHARED_VCPU, Tenant
from tests.crash.wire import Answer, Client, Lost


class Wrong(AssertionError):
    """A forbidden answer."""


def send(client: Client, tenant: Tenant, step: Step) -> Answer:
    """Sends one request, and records it before and after. Raises `Lost` if it is unknown whether it was carried out."""
    tenant.known.pending = step
    answer = client.send(step.method, step.path, step.body)
    if 200 <= answer.status < 300:
        tenant.known.acknowledge(step)
    elif answer.status == 503:
        raise Lost(answer.reason)
    elif step.may_be_refused and answer.status == 409 and "Unable to allocate inventory" in answer.reason:
        tenant.known.refuse()
    else:
        raise Wrong(f"{step} was answered with {answer}")
    return answer


def set_up(client: Client, tenants: Sequence[Tenant], shared: Sequence[str]) -> None:
    for number, uuid in enumerate(shared):
        body = {"name": f"shared-{number}", "uuid": uuid}
        inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": SHARED_VCPU}}}
        for answer in (
            client.send("POST", "/resource_providers", body),
            client.send("PUT", f"/resource_providers/{uuid}/inventories", inventories),
        ):
            if answer.status != 200:
                raise Wrong(str(answer))
    for tenant in tenants:
        for step in tenant.first_steps():
            send(client, tenant, step)
        for uuid in sorted(tenant.known.of(ProviderState)):
            send(client, tenant, tenant.set_up_step(uuid))


class Load:
    """One thread per tenant. `answered` is called right after each answer with the number of answers so far."""

    def __init__(self, url: str, tenants: Sequence[Tenant], answered: Callable[[int], None]) -> None:
        self._url = url
        self._answered = answered
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.wrong: list[BaseException] = []
        self.lost: list[str] = []  #: why each client ended: the refusal, or the error of the connection
        self.counts: dict[str, int] = {}
        self.acknowledged = 0
        self._threads = [threading.Thread(target=self._work, args=(tenant,), daemon=True) for tenant in tenants]
        for thread in self._threads:
            thread.start()

    def _work(self, tenant: Tenant) -> None:
        client = Client(self._url)
        try:
            while not self._stopping.is_set():
                step = tenant.next_step()
                send(client, tenant, step)
                with self._lock:
                    self.acknowledged += 1
                    self.counts[step.what] = self.counts.get(step.what, 0) + 1
                    number = self.acknowledged
                self._answered(number)
        except Lost as error:
            self.lost.append(str(error))
        except BaseException as error:  # noqa: BLE001 - the thread that joins this one raises it
            self.wrong.append(error)
        finally:
            client.close()

    def stop(self) -> None:
        """Stops after the requests in progress."""
        self._stopping.set()

    def join(self, timeout_s: float = 60.0) -> None:
        for thread in self._threads:
            thread.join(timeout_s)
            if thread.is_alive():
                raise Wrong("a request was not answered, and its connection did not end")
        if self.wrong:
            raise self.wrong[0]
