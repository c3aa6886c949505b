"""Bound requests of two cards for ports, and what Nova writes of them into the ports' binding profiles."""

from dataclasses import replace

from tests.unit.accelerator.rig import many_gpus, new_instance, rp
from tests.wire.accelerator.test_binding import CARD, Plane

CARDS = "0000:01:00.0", "0000:02:00.0"


def bound_port_requests(tmp_path, wire, engine, clock) -> list[dict]:
    """Two bound requests as the API shows them: of a card with a physical network and of one without."""
    with_network, without = many_gpus(2)
    with_network = replace(with_network, details=(("physical_network", "physnet0"),))
    plane = Plane(tmp_path, wire, engine, clock, (with_network, without))
    plane.profile("port", CARD, CARD)
    places = {arq["uuid"]: rp(card) for arq, card in zip(plane.requests("port"), CARDS, strict=True)}
    assert plane.bind(places, new_instance()).status == 202
    plane.run_host()
    return [plane.wire("GET", f"/v2/accelerator_requests/{uuid}").body for uuid in places]


def binding_profiles(arqs: list[dict]) -> list[dict]:
    """What Nova 34 makes of `bound_port_requests`: `physical_network` must be there, and may be null."""
    return [
        {"physical_network": network, "pci_slot": card, "arq_uuid": arq["uuid"]}
        for arq, card, network in zip(arqs, CARDS, ("physnet0", None), strict=True)
    ]
