"""Use cases of flavors, their extra specs and their access lists."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model.servers import Flavor
from moorage.compute.requests.server_request import flavor_fields, visible_flavor
from moorage.compute.store import flavor_store as store
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Invalid, NotFound
from moorage.db.session import in_transaction, read
from moorage.scheduler.extra_specs import IncompleteSpecs, check_known_specs
from moorage.scheduler.flavor_resources import request_for

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FlavorService:
    deps: ComputeDeps

    def list_flavors(self, caller: Caller, is_public: bool | None) -> list[Flavor]:
        """Flavors, sorted by id. `is_public` True: flavors that the caller's project may use; None: all; False: private
        ones.

        A caller without the right to see all flavors always gets the first kind.
        """
        with read(self.deps.engine) as connection:
            if is_public or not _sees_all(caller):
                return store.all_flavors(connection, visible_to=caller.project_id)
            found = store.all_flavors(connection)
        return found if is_public is None else [flavor for flavor in found if not flavor.is_public]

    def get_flavor(self, caller: Caller, flavor_id: str) -> Flavor:
        with read(self.deps.engine) as connection:
            return visible_flavor(connection, caller, flavor_id)

    def create_flavor(self, flavor: Flavor) -> Flavor:
        """An empty `flavor.id` is replaced by a uuid."""
        flavor = replace(flavor, id=flavor.id or self.deps.ids.uuid())

        def insert_flavor(connection: Connection) -> None:
            if store.flavor(connection, flavor.id) is not None:
                raise Conflict(f"Flavor with ID {flavor.id} already exists.")
            if store.flavor_by_name(connection, flavor.name) is not None:
                raise Conflict(f"Flavor with name {flavor.name} already exists.")
            store.insert_flavor(connection, flavor, self.deps.clock.now())

        in_transaction(self.deps.engine, insert_flavor)
        return flavor

    def set_description(self, flavor_id: str, description: str | None) -> Flavor:
        def write_description(connection: Connection) -> Flavor:
            flavor = _locked(connection, flavor_id)
            store.set_description(connection, flavor_id, description)
            return replace(flavor, description=description)

        return in_transaction(self.deps.engine, write_description)

    def delete_flavor(self, flavor_id: str) -> None:
        """Servers keep their own copies."""

        def delete_flavor(connection: Connection) -> None:
            if not store.delete_flavor(connection, flavor_id):
                raise _no_flavor(flavor_id)

        in_transaction(self.deps.engine, delete_flavor)

    # ---------------------------------------------------------------------------------- extra specs

    def add_extra_specs(self, flavor_id: str, added: Mapping[str, str], *, known_only: bool = False) -> None:
        """Adds all keys, or none: raises `Invalid` for keys that no further key could complete, and with `known_only`
        also for keys and values that no hypervisor knows.

        Clients set keys one by one and in any order. So an incomplete set is stored, with a warning in the log;
        creating a server checks the whole set.
        """
        if known_only:
            check_known_specs(added)

        def add_specs(connection: Connection) -> None:
            flavor = _locked(connection, flavor_id)
            together = {**flavor.extra_specs, **added}
            _check_added(flavor, together, added)
            store.set_extra_specs(connection, flavor_id, together)

        in_transaction(self.deps.engine, add_specs)

    def remove_extra_spec(self, flavor_id: str, key: str) -> None:
        """Removes one key; raises `NotFound` if it does not exist.

        Always allowed, because clients remove several keys one by one: further keys can complete the remaining ones,
        and creating a server checks them.
        """

        def remove_spec(connection: Connection) -> None:
            left = dict(_locked(connection, flavor_id).extra_specs)
            if left.pop(key, None) is None:
                raise NotFound(f"Flavor {flavor_id} has no extra specs with key {key}.")
            store.set_extra_specs(connection, flavor_id, left)

        in_transaction(self.deps.engine, remove_spec)

    # --------------------------------------------------------------------------------------- access

    def access(self, flavor_id: str) -> list[str]:
        """Projects that may use the private flavor."""
        with read(self.deps.engine) as connection:
            flavor = store.flavor(connection, flavor_id)
            if flavor is None:
                raise _no_flavor(flavor_id)
            if flavor.is_public:
                raise NotFound("Access list not available for public flavors.")
            return store.access(connection, flavor_id)

    def add_access(self, flavor_id: str, project_id: str) -> list[str]:
        def add_project(connection: Connection) -> list[str]:
            if _locked(connection, flavor_id).is_public:
                raise Conflict("Can not add access to a public flavor.")
            before = store.access(connection, flavor_id)
            if project_id in before:
                raise Conflict(
                    f"Flavor access already exists for flavor {flavor_id} and project {project_id} combination."
                )
            store.add_access(connection, flavor_id, project_id)
            return sorted([*before, project_id])

        return in_transaction(self.deps.engine, add_project)

    def remove_access(self, flavor_id: str, project_id: str) -> list[str]:
        def remove_project(connection: Connection) -> list[str]:
            if _locked(connection, flavor_id).is_public:
                raise Conflict("Can not remove access to a public flavor.")
            if not store.remove_access(connection, flavor_id, project_id):
                raise NotFound(f"Flavor access not found for {flavor_id} / {project_id} combination.")
            return store.access(connection, flavor_id)

        return in_transaction(self.deps.engine, remove_project)


def _sees_all(caller: Caller) -> bool:
    return caller.is_admin or caller.is_service


def _check_added(flavor: Flavor, together: Mapping[str, str], added: Mapping[str, str]) -> None:
    """Raises `Invalid` if `added` is wrong by itself, or contradicts what the flavor has.

    If the flavor had contradictions before, only `added` itself is checked, so that keys can be corrected one by one.
    """
    if (fault := _fault(flavor, together)) is None:
        return
    if not isinstance(fault, IncompleteSpecs):
        before = _fault(flavor, flavor.extra_specs)
        if before is None or isinstance(before, IncompleteSpecs):
            raise fault
        if (own := _fault(flavor, added)) is not None and not isinstance(own, IncompleteSpecs):
            raise own
    log.warning("extra specs of a flavor are incomplete", extra={"flavor": flavor.id, "reason": fault.message})


def _fault(flavor: Flavor, extra_specs: Mapping[str, str]) -> Invalid | None:
    """The reason why no server could be placed with these extra specs."""
    try:
        request_for(flavor_fields(replace(flavor, extra_specs=extra_specs)))
    except Invalid as fault:
        return fault
    return None


def _locked(connection: Connection, flavor_id: str) -> Flavor:
    flavor = store.lock_flavor(connection, flavor_id)
    if flavor is None:
        raise _no_flavor(flavor_id)
    return flavor


def _no_flavor(flavor_id: str) -> NotFound:
    return NotFound(f"Flavor {flavor_id} could not be found.")
