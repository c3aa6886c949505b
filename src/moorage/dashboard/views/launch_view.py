"""Launching servers on a lease: the choices of the form, the command line, and the request body. Pure."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.core.errors import Invalid
from moorage.core.json import Json, JsonObject
from moorage.core.names import reservation_flavor
from moorage.dashboard.views.lease_form import TYPES, parse_number
from moorage.dashboard.views.reservation_documents import LeaseDocument, ReservationDocument
from moorage.dashboard.views.tables import natural_key
from moorage.dashboard.views.units import flavor_size

#: Reservations of floating IPs have no servers.
_WITH_SERVERS = frozenset(TYPES)
_HOSTS = "physical:host"
#: The fields of an empty form.
DEFAULTS: Mapping[str, str] = {
    "reservation": "", "name": "", "image": "", "flavor": "", "network": "none", "key_name": "", "count": "1",
}  # fmt: skip
NETWORKS: Mapping[str, str] = {"none": "None", "auto": "Automatic: the project's network"}


@dataclass(frozen=True, slots=True)
class LaunchTarget:
    """A reservation on which servers can run. `command`: what a terminal runs instead of the form."""

    reservation_id: str
    words: str
    command: str
    needs_flavor: bool  #: servers on whole hosts may have any flavor; the others have that of the reservation


def launch_targets(lease: LeaseDocument) -> list[LaunchTarget]:
    return [_target(each, lease["name"]) for each in lease["reservations"] if each["resource_type"] in _WITH_SERVERS]


def _target(reservation: ReservationDocument, lease_name: str) -> LaunchTarget:
    is_hosts, words = reservation["resource_type"] == _HOSTS, TYPES[reservation["resource_type"]]
    place = f"--hint reservation={reservation['id']} --flavor FLAVOR" if is_hosts else f"--flavor {reservation['id']}"
    name = shlex.quote("-".join(lease_name.split())[:40] or "server")
    command = f"openstack server create {place} --image IMAGE --nic none {name}-1"
    return LaunchTarget(reservation["id"], words, command, is_hosts)


def flavor_choices(flavors: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """[(id, name and size)], sorted by name; without the private flavors of reservations."""
    shown = [row for row in flavors if not str(row["name"]).startswith(reservation_flavor(""))]
    return [
        (str(row["id"]), f"{row['name']}: {flavor_size(row['vcpus'], row['ram'], row['disk'])}")
        for row in sorted(shown, key=lambda row: natural_key(row["name"]))
    ]


def image_choices(images: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """[(id, name)], sorted by name. Images of one name also have the beginning of their ids."""
    named = sorted(
        ((str(row["id"]), str(row["name"] or row["id"])) for row in images),
        key=lambda row: (natural_key(row[1]), row[0]),
    )
    counts = Counter(name for _, name in named)
    return [(some_id, f"{name} ({some_id[:8]})" if counts[name] > 1 else name) for some_id, name in named]


def launch_body(typed: Mapping[str, str], targets: Sequence[LaunchTarget]) -> dict[str, Json]:
    """The body of ``POST /servers``. Raises `Invalid`, naming the field."""
    target = next((each for each in targets if each.reservation_id == typed["reservation"]), None)
    if target is None:
        raise Invalid("Reservation: select one of this lease", field="reservation")
    for name, words in (("name", "Name: enter a name for the server"), ("image", "Image: select one")):
        if not typed[name]:
            raise Invalid(words, field=name)
    if target.needs_flavor and not typed["flavor"]:
        raise Invalid("Flavor: select one; servers on a whole host may have any flavor", field="flavor")
    if typed["network"] not in NETWORKS:
        raise Invalid(f"Network: select one of {', '.join(NETWORKS.values())}", field="network")
    count = parse_number(typed, "count", "Number of servers")
    if not 1 <= count <= 100:
        raise Invalid("Number of servers: enter 1 to 100", field="count")
    server: dict[str, Json] = {
        "name": typed["name"],
        "imageRef": typed["image"],
        "flavorRef": typed["flavor"] if target.needs_flavor else target.reservation_id,
        "networks": typed["network"],
        "min_count": count,
        "max_count": count,
    }
    if typed["key_name"]:
        server["key_name"] = typed["key_name"]
    hints: JsonObject = {"reservation": target.reservation_id} if target.needs_flavor else {}
    return {"server": server, **({"os:scheduler_hints": hints} if hints else {})}
