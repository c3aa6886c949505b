"""Use cases of the catalogue: the endpoints of this plane, from its configuration, and those that administrators add.

The id of a service of this plane is its type, and of its endpoint the type and the interface. They change with the
configuration only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from moorage.core.errors import Conflict, Forbidden, Invalid
from moorage.core.ids import Ids
from moorage.identity.accounts import account_rules as rules
from moorage.identity.accounts.account_rules import find
from moorage.identity.accounts.account_service import Given, chosen, extra_of
from moorage.identity.model import Accounts, CatalogEndpoint, CatalogService, Change, Region
from moorage.identity.store.account_database import AccountDatabase

#: Names in the catalogue, as upstream's services register themselves; `openstack catalog list` shows them.
#: Libcloud looks for its endpoints by type and name.
SERVICE_NAMES = {
    "accelerator": "cyborg",
    "compute": "nova",
    "identity": "keystone",
    "image": "glance",
    "network": "neutron",
    "placement": "placement",
    "reservation": "blazar",
}

INTERFACES = ("public", "internal", "admin")

_SERVICE_KEYS = frozenset({"id", "type", "name", "enabled", "links"})
_ENDPOINT_KEYS = frozenset({"id", "service_id", "interface", "url", "region", "region_id", "enabled", "links"})


@dataclass(frozen=True)
class CatalogEditor:
    """`own`: {service type: path on this server (``/compute/v2.1``), or a full URL (of a real Glance)}.

    `mount` is the path prefix of identity. The paths are appended to a request's base URL without it.
    """

    database: AccountDatabase
    ids: Ids
    own: Mapping[str, str]
    region: str
    mount: str

    # ------------------------------------------------------------------------------------------------- reading

    def regions(self) -> list[Region]:
        own = Region(self.region, "This plane")
        return [own, *(row for row in self.database.accounts().regions.values() if row.id != self.region)]

    def services(self) -> list[CatalogService]:
        own = [CatalogService(kind, kind, SERVICE_NAMES.get(kind, kind)) for kind in self.own]
        return [*own, *self.database.accounts().services.values()]

    def endpoints(self, base_url: str) -> list[CatalogEndpoint]:
        root = base_url.rstrip("/").removesuffix(self.mount)
        own = [
            CatalogEndpoint(
                f"{kind}-{interface}", kind, interface, root + at if at.startswith("/") else at, self.region
            )
            for kind, at in self.own.items()
            for interface in INTERFACES
        ]
        return [*own, *self.database.accounts().endpoints.values()]

    # ------------------------------------------------------------------------------------------------- regions

    def create_region(self, given: Given) -> Region:
        region = Region(
            given.get("id") or self._new_id(), given.get("description") or "", given.get("parent_region_id")
        )

        def decide(accounts: Accounts) -> tuple[Region, Change]:
            if region.id in accounts.regions or region.id == self.region:
                raise Conflict(f"There is a region {region.id} already.")
            self._check_region(accounts, region.parent_region_id)
            return region, Change(added=(region,))

        return self.database.change(decide)

    def update_region(self, region_id: str, given: Given) -> Region:
        self._refuse_own(region_id == self.region)

        def decide(accounts: Accounts) -> tuple[Region, Change]:
            before = find(accounts.regions, region_id, "region")
            after = replace(before, **chosen(given, "description"))
            if "parent_region_id" in given:
                after = replace(after, parent_region_id=given["parent_region_id"])
                self._check_region(accounts, after.parent_region_id)
                _check_no_circle(accounts, after)
            return after, Change(changed=(after,))

        return self.database.change(decide)

    def delete_region(self, region_id: str) -> None:
        self._refuse_own(region_id == self.region)
        self.database.change(
            lambda accounts: (None, rules.without_region(accounts, find(accounts.regions, region_id, "region")))
        )

    # ------------------------------------------------------------------------------------------------ services

    def create_service(self, given: Given) -> CatalogService:
        service = CatalogService(
            self._new_id(),
            given["type"],
            given.get("name") or "",
            given.get("enabled", True),
            extra_of({}, given, _SERVICE_KEYS),
        )
        return self.database.change(lambda _: (service, Change(added=(service,))))

    def update_service(self, service_id: str, given: Given) -> CatalogService:
        self._refuse_own(service_id in self.own)

        def decide(accounts: Accounts) -> tuple[CatalogService, Change]:
            before = find(accounts.services, service_id, "service")
            extra = extra_of(before.extra, given, _SERVICE_KEYS)
            after = replace(before, **chosen(given, "type", "name", "enabled"), extra=extra)
            return after, Change(changed=(after,))

        return self.database.change(decide)

    def delete_service(self, service_id: str) -> None:
        self._refuse_own(service_id in self.own)
        self.database.change(
            lambda accounts: (None, rules.without_service(accounts, find(accounts.services, service_id, "service")))
        )

    # ----------------------------------------------------------------------------------------------- endpoints

    def create_endpoint(self, given: Given) -> CatalogEndpoint:
        rules.check_interface(given["interface"])
        endpoint = CatalogEndpoint(
            id=self._new_id(),
            service_id=given["service_id"],
            interface=given["interface"],
            url=given["url"],
            region_id=given.get("region_id") or given.get("region"),
            enabled=given.get("enabled", True),
            extra=extra_of({}, given, _ENDPOINT_KEYS),
        )

        def decide(accounts: Accounts) -> tuple[CatalogEndpoint, Change]:
            self._check_endpoint(accounts, endpoint)
            return endpoint, Change(added=(endpoint,))

        return self.database.change(decide)

    def update_endpoint(self, endpoint_id: str, given: Given) -> CatalogEndpoint:
        self._refuse_own(self._is_own_endpoint(endpoint_id))
        if "interface" in given:
            rules.check_interface(given["interface"])

        def decide(accounts: Accounts) -> tuple[CatalogEndpoint, Change]:
            before = find(accounts.endpoints, endpoint_id, "endpoint")
            extra = extra_of(before.extra, given, _ENDPOINT_KEYS)
            region_id = given.get("region_id", given.get("region", before.region_id))
            values = chosen(given, "interface", "url", "enabled", "service_id")
            after = replace(before, **values, region_id=region_id, extra=extra)
            self._check_endpoint(accounts, after)
            return after, Change(changed=(after,))

        return self.database.change(decide)

    def delete_endpoint(self, endpoint_id: str) -> None:
        self._refuse_own(self._is_own_endpoint(endpoint_id))
        self.database.change(
            lambda accounts: (None, Change(removed=(find(accounts.endpoints, endpoint_id, "endpoint"),)))
        )

    def _is_own_endpoint(self, endpoint_id: str) -> bool:
        return endpoint_id in {f"{kind}-{interface}" for kind in self.own for interface in INTERFACES}

    def _check_endpoint(self, accounts: Accounts, endpoint: CatalogEndpoint) -> None:
        if endpoint.service_id in self.own:
            raise Forbidden(f"The endpoints of {endpoint.service_id} come from the configuration of this plane.")
        find(accounts.services, endpoint.service_id, "service")
        self._check_region(accounts, endpoint.region_id)

    def _check_region(self, accounts: Accounts, region_id: str | None) -> None:
        if region_id not in (None, self.region):
            find(accounts.regions, region_id or "", "region")

    def _refuse_own(self, is_own: bool) -> None:
        if is_own:
            raise Forbidden("This entry comes from the configuration of this plane ([plane] region and [endpoints]).")

    def _new_id(self) -> str:
        return self.ids.uuid().replace("-", "")


def _check_no_circle(accounts: Accounts, region: Region) -> None:
    above, seen = region.parent_region_id, {region.id}
    while above is not None:
        if above in seen:
            raise Invalid(f"Region {region.id} would be below itself.")
        seen.add(above)
        parent = accounts.regions.get(above)
        above = parent.parent_region_id if parent else None
