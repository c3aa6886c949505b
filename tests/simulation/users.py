"""The actions of users on servers, accelerators, leases of all types, devices, host configuration and quotas."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from moorage.core.errors import MoorageError
from moorage.wire.client import NoCredentials
from tests.simulation.network import Line
from tests.system.planes import AES, PlaneClients

if TYPE_CHECKING:
    from tests.simulation.world import World

GPU = "CUSTOM_ACCELERATOR_GPU"
_MOST_SERVERS = 14
_MOST_LEASES = 10
#: Action -> the rest of its body. It is refused if the server's state does not allow it.
_OPERATIONS: dict[str, Any] = {
    "os-stop": None,
    "os-start": None,
    "pause": None,
    "unpause": None,
    "suspend": None,
    "resume": None,
    "reboot": {"type": "HARD"},
    "shelve": None,
    "shelveOffload": None,
    "unshelve": None,
    "rescue": {},
    "unrescue": None,
    "migrate": None,
    "confirmResize": None,
    "revertResize": None,
    "createImage": {"name": "picture"},
    "rebuild": None,
    "resize": None,
    "os-resetState": {"state": "active"},
}
_OPERATION_WEIGHTS = [1 if name in ("os-resetState", "createImage") else 3 for name in _OPERATIONS]

_CONFIGURATION = """meta: {{schema_version: '1.0'}}
providers:
  - identification: {{uuid: $COMPUTE_NODE}}
    inventories: {{additional: [{{CUSTOM_LLC: {{total: {total}}}}}]}}
    traits: {{additional: [{trait}]}}
"""

#: Units of CUSTOM_LLC that users configure for a host.
_TOTALS = (4, 8, 16)
#: The resources of each unit of a ``resource:any`` lease.
_RESOURCES = {"CUSTOM_LLC": 1, "VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 1}


class Users:
    """`busy`: the mean pause between two actions."""

    def __init__(self, world: "World", busy: timedelta = timedelta(hours=4)) -> None:
        self._world = world
        self._random = random.Random(f"{world.seed}/users")
        self._busy_s = busy.total_seconds()
        url = "http://127.0.0.1:8778"
        self.clients = PlaneClients(lambda path: Line(world, None, url + path), NoCredentials(), world.clock)
        self.acting = False
        self.image = ""
        self._loads: list[str] = []
        self._configurations = 0
        self._projects = 0
        self.done: dict[str, int] = {}
        self._actions: list[tuple[int, Callable[[], object]]] = [
            (8, self.create_server),
            (7, self.delete_server),
            (12, self.operate),
            (4, self.create_lease),
            (4, self.launch_on_lease),
            (2, self.change_lease),
            (2, self.delete_lease),
            (2, self.create_accelerator_request),
            (2, self.delete_accelerator_request),
            (1, self.program),
            (1, self.configure_host),
            (1, self.set_quota),
            (1, self.disable_or_enable_host),
        ]

    # -------------------------------------------------------------------------------------------------- start

    def create_resources(self) -> None:
        """Creates flavors, images and hosts for reservations before the faults begin."""
        clients = self.clients
        self.image = clients.create_image()
        clients.create_flavor("small")
        clients.create_flavor("medium", ram_mb=2048)
        clients.create_flavor("cached", **{"resources:CUSTOM_LLC": "2"})
        clients.create_flavor("gpu", **{f"resources:{GPU}": "1"})
        clients.create_fpga_flavor("fpga")
        self._loads = [
            image["id"] for image in clients.image.get("/v2/images")["images"] if image.get("function_uuid") == AES
        ]
        for host in self._world.hosts[-2:]:
            clients.reservation.request("POST", "/v1/os-hosts", json={"name": host})
        groups = [{f"resources:{GPU}": "1"}]
        clients.accelerator.request("POST", "/device_profiles", json=[{"name": "gpu", "groups": groups}])
        for host in self._world.hosts:
            self.configure(host, 8)

    def begin(self) -> None:
        self.acting = True
        self._plan()

    def stop(self) -> None:
        self.acting = False

    def _plan(self) -> None:
        if self.acting:
            pause_s = round(self._random.expovariate(1 / self._busy_s), 3)
            self._world.later(pause_s, "users", self._act)

    def _act(self) -> None:
        if not self.acting:
            return
        (action,) = self._random.choices([what for _, what in self._actions], [often for often, _ in self._actions])
        self.done[action.__name__] = self.done.get(action.__name__, 0) + 1
        try:
            self._world.story.tell(f"user {action.__name__}: {action()}")
        except MoorageError as error:
            self._world.story.tell(f"user {action.__name__} refused: {error.message}")
        self._plan()

    # ------------------------------------------------------------------------------------------------ servers

    def _servers(self) -> list[dict[str, Any]]:
        return self.clients.compute.get("/servers/detail")["servers"]

    def create_server(self) -> object:
        if len(self._servers()) >= _MOST_SERVERS:
            return "enough of them"
        flavor = self._random.choices(["small", "medium", "cached", "gpu", "fpga"], [4, 2, 2, 3, 3])[0]
        return self.clients.create_server(flavor=flavor, image=self.image)

    def delete_server(self) -> object:
        if not (servers := self._servers()):
            return "none"
        server = self._random.choice(servers)["id"]
        self.clients.compute.request("DELETE", f"/servers/{server}")
        return server

    def operate(self) -> object:
        if not (servers := self._servers()):
            return "none"
        server = self._random.choice(servers)
        # Half of the time, an operation that the server's state allows, so that not most requests are refused.
        (name,) = self._random.choices(list(_OPERATIONS), _OPERATION_WEIGHTS)
        name = (
            {"VERIFY_RESIZE": self._random.choice(["confirmResize", "revertResize"]), "SHUTOFF": "os-start"}.get(
                server["status"], name
            )
            if self._random.random() < 0.5
            else name
        )
        body = _OPERATIONS[name]
        if name == "rebuild":
            body = {"imageRef": self.image}
        elif name == "resize":
            body = {"flavorRef": self._random.choice(["small", "medium", "cached", "gpu"])}
        self.clients.compute.request("POST", f"/servers/{server['id']}/action", json={name: body})
        return f"{name} {server['id']}"

    # ------------------------------------------------------------------------------------------------- leases

    def _leases(self) -> list[dict[str, Any]]:
        return sorted(self.clients.reservation.get("/v1/leases")["leases"], key=lambda lease: lease["id"])

    def create_lease(self) -> object:
        if sum(lease["status"] in ("PENDING", "ACTIVE", "STARTING") for lease in self._leases()) >= _MOST_LEASES:
            return "enough of them"
        start = self._world.clock.now() + timedelta(minutes=self._random.randrange(5, 5 * 24 * 60))
        end = start + timedelta(minutes=self._random.randrange(10, 6 * 24 * 60))
        amount = self._random.randint(1, 3)
        kind = self._random.choice(
            ["virtual:instance", "virtual:instance", "physical:host", "flavor:instance", "resource:any"]
        )
        reservation: dict[str, Any] = {"resource_type": kind}
        if kind == "physical:host":
            reservation |= {"min": 1, "max": 1, "hypervisor_properties": "", "resource_properties": ""}
        elif kind == "resource:any":
            reservation |= {"resources": _RESOURCES, "amount": amount}
        elif kind == "flavor:instance":
            reservation |= {"flavor_id": "small", "amount": amount, "affinity": "None"}
        else:
            affinity = self._random.choice(["None", "None", "False", "True"])
            reservation |= {"vcpus": 1, "memory_mb": 512, "disk_gb": 1, "amount": amount, "affinity": affinity}
            reservation |= {"resource_properties": ""}
        return f"{kind} {self._create_lease(start, end, reservation)}"

    def _create_lease(self, start: datetime, end: datetime, reservation: dict[str, Any]) -> str:
        body = {
            "name": "lease",
            "start_date": start.strftime("%Y-%m-%d %H:%M"),
            "end_date": end.strftime("%Y-%m-%d %H:%M"),
            "reservations": [reservation],
            "before_end_date": None,
        }
        made = self.clients.reservation.request("POST", "/v1/leases", json=body, version="1.1")
        return str(made["lease"]["id"])

    def can_reserve_one_more(self, lease: dict[str, Any]) -> bool:
        """Whether a lease of one more unit of the resources is possible in the time of this lease."""
        now = self._world.clock.now()
        start, end = (
            datetime.fromisoformat(lease[key]).replace(tzinfo=now.tzinfo) for key in ("start_date", "end_date")
        )
        start = max(start, now + timedelta(minutes=1))
        try:
            made = self.lease_resources(start, end - start, 1)
        except MoorageError as error:
            self._world.story.tell(f"user has no capacity for one more: {error.message}")
            return False
        self.clients.reservation.request("DELETE", f"/v1/leases/{made}")
        return True

    def lease_resources(self, start: datetime, duration: timedelta, amount: int) -> str:
        """Returns the id of the lease."""
        return self._create_lease(
            start, start + duration, {"resource_type": "resource:any", "resources": _RESOURCES, "amount": amount}
        )

    def launch_on_lease(self) -> object:
        leases = [lease for lease in self._leases() if lease["status"] == "ACTIVE"]
        if not leases or len(self._servers()) >= _MOST_SERVERS:
            return "none"
        reservation = self._random.choice(leases)["reservations"][0]
        if reservation["resource_type"] == "physical:host":
            return "a whole host"
        return self.clients.create_server(flavor=reservation["id"], image=self.image)

    def change_lease(self) -> object:
        if not (leases := [lease for lease in self._leases() if lease["status"] in ("PENDING", "ACTIVE")]):
            return "none"
        lease = self._random.choice(leases)
        if self._random.random() < 0.3 and "amount" in lease["reservations"][0]:
            values = {"id": lease["reservations"][0]["id"], "amount": self._random.randint(1, 4)}
            body: dict[str, Any] = {"reservations": [values]}
        else:
            end = self._world.clock.now() + timedelta(minutes=self._random.randrange(2, 5 * 24 * 60))
            body = {"end_date": end.strftime("%Y-%m-%d %H:%M")}
        self.clients.reservation.request("PUT", f"/v1/leases/{lease['id']}", json=body, version="1.1")
        return lease["id"]

    def delete_lease(self) -> object:
        if not (leases := self._leases()):
            return "none"
        lease = self._random.choice(leases)["id"]
        self.clients.reservation.request("DELETE", f"/v1/leases/{lease}")
        return lease

    # ------------------------------------------------------------------------------- accelerators, hosts, quotas

    def create_accelerator_request(self) -> object:
        """Creates accelerator requests, as Nova does. Nothing claims them in Placement, so they are soon deleted."""
        made = self.clients.accelerator.request("POST", "/accelerator_requests", json={"device_profile_name": "gpu"})
        return [arq["uuid"] for arq in made["arqs"]]

    def delete_accelerator_request(self) -> object:
        rows = self.clients.accelerator.get("/accelerator_requests")["arqs"]
        mine = sorted(row["uuid"] for row in rows if row["device_profile_name"] == "gpu")
        if not mine:
            return "none"
        arq = self._random.choice(mine)
        self.clients.accelerator.request("DELETE", f"/accelerator_requests?arqs={arq}")
        return arq

    def program(self) -> object:
        parts = self.clients.accelerator.get("/deployables")["deployables"]
        regions = sorted(part["uuid"] for part in parts if "_R" in part["name"])
        if not regions:
            return "none"
        value = [{"path": "/program", "op": "replace", "value": [{"image_uuid": self._random.choice(self._loads)}]}]
        region = self._random.choice(regions)
        self.clients.accelerator.request("PATCH", f"/deployables/{region}/program", json=value)
        return region

    def configure_host(self) -> object:
        host = self._random.choice(self._world.hosts)
        # An inventory may be reduced below its usage; then nothing more is allocated.
        self.configure(host, self._random.choice(_TOTALS))
        return host

    def restore_capacity(self) -> None:
        """Gives each host the greatest inventory that the users ever configure."""
        for host in self._world.hosts:
            self.configure(host, max(_TOTALS))

    def configure(self, host: str, total: int) -> None:
        self._configurations += 1
        part = self._world.parts[host]
        text = _CONFIGURATION.format(total=total, trait=f"CUSTOM_PHASE_{self._configurations % 3}")
        (part.state / "provider_config" / "host.yaml").write_text(text)
        part.reload()

    def set_quota(self) -> object:
        limit = self._random.choice([5, 40, -1])
        body = {"quota_set": {"instances": limit}}
        self.clients.compute.request("PUT", "/os-quota-sets/demo", json=body)
        return limit

    def disable_or_enable_host(self) -> object:
        services = self.clients.compute.get("/os-services", params={"binary": "nova-compute"})["services"]
        service = self._random.choice(sorted(services, key=lambda one: one["host"]))
        status = "enabled" if service["status"] == "disabled" or self._random.random() < 0.6 else "disabled"
        self.clients.compute.request("PUT", f"/os-services/{service['id']}", json={"status": status})
        return f"{service['host']} {status}"

    def enable_hosts(self) -> None:
        """Enables all disabled hosts, at the end of a round."""
        for service in self.clients.compute.get("/os-services", params={"binary": "nova-compute"})["services"]:
            if service["status"] == "disabled":
                self.clients.compute.request("PUT", f"/os-services/{service['id']}", json={"status": "enabled"})
