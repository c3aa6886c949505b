"""The tour: uses a whole plane with the unmodified OpenStack clients and checks each answer.

Run by ``make demo`` and by the tests. Prints every command and its output. Exits with 0 only if all checks pass, and
stops everything it started. Needs only the two virtual environments that the Makefile builds.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tour import Failed, Tour

#: UUIDs of the functions of the tour's bitstreams, as they appear in flavors.
AES = "6b7e1f0a-95cc-4c2b-8d5e-3a1f0c9d7e21"
FFT = "c2a9d7b4-0f3e-4b61-9a58-71e6d0b4c935"

LLC_RECORD = """\
        CUSTOM_LLC:
          # Describing the last-level cache of this compute node
          total: 22
          reserved: 2
          min_unit: 1
          max_unit: 11
          step_size: 1
          allocation_ratio: 1
"""

LLC_MAPPING = f"""\
meta:
  schema_version: 1.0
providers:
  - identification:
      uuid: $COMPUTE_NODE
    inventories:
      additional:
{LLC_RECORD}\
    traits:
      additional:
        - CUSTOM_P_STATE_ENABLED
"""

#: The other form of `additional`, in files written for Nova: a list of mappings with one key.
LLC_LIST = LLC_MAPPING.replace("schema_version: 1.0", "schema_version: '1.0'").replace(
    LLC_RECORD, textwrap.indent(LLC_RECORD, "  ").replace("  CUSTOM_LLC", "- CUSTOM_LLC")
)

#: {error: (file contents, words that the message must contain: position and remedy)}
BROKEN = {
    "it is not YAML": (LLC_MAPPING.replace("total: 22", "total: [22"), (":11:", "YAML")),
    "VCPU is not a custom class": (LLC_MAPPING.replace("CUSTOM_LLC", "VCPU"), ("VCPU", "CUSTOM_")),
    "the same provider twice": (
        LLC_MAPPING + LLC_MAPPING[LLC_MAPPING.index("  - identification") :],
        ("$COMPUTE_NODE",),
    ),
}


def broken_files(tour: Tour) -> None:
    tour.title("1. Provider configuration: a broken file stops the agent, with a reason")
    file = _configuration_file(tour)
    for claim, (text, words) in BROKEN.items():
        file.write_text(text)
        _refused_start(tour, claim, file, words)
    file.write_text(LLC_MAPPING)
    file.chmod(0o666)
    _refused_start(tour, "other users may write it", file, ("writ",))
    file.chmod(0o600)


def _configuration_file(tour: Tour) -> Path:
    """Writes a valid file that only its owner can access."""
    folder = tour.state / "provider_config"
    folder.mkdir(mode=0o700)
    file = folder / "10-llc.yaml"
    file.write_text(LLC_MAPPING)
    file.chmod(0o600)
    return file


def _refused_start(tour: Tour, claim: str, file: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        tour.up_command, env=tour.environment, capture_output=True, text=True, timeout=180, check=False
    )
    message = done.stderr.strip()
    tour.say(f"$ moorage up\n{message}")
    told = file.name in message and all(word in message for word in words)
    tour.check(f"rejected, with file and position: {claim}", holds=done.returncode != 0 and told, found=done)


def provider_configuration(tour: Tour) -> None:
    tour.title("1. Provider configuration: the example of the specification")
    tour.say((tour.state / "provider_config" / "10-llc.yaml").read_text())
    tour.start()
    tour.run("openstack resource provider list -c name -c generation")
    root = tour.provider("compute-1")
    tour.run(f"openstack resource provider inventory list {root}")
    rows = tour.rows(f"openstack resource provider inventory list {root}")
    llc = next((row for row in rows if row["resource_class"] == "CUSTOM_LLC"), {})
    wanted = {"total": 22, "reserved": 2, "min_unit": 1, "max_unit": 11, "step_size": 1, "allocation_ratio": 1.0}
    tour.check("CUSTOM_LLC is published as configured", holds=wanted.items() <= llc.items(), found=llc)
    traits = tour.run(f"openstack resource provider trait list {root} -f value")
    tour.check("CUSTOM_P_STATE_ENABLED is published", holds="CUSTOM_P_STATE_ENABLED" in traits.split(), found=traits)


def discovery(tour: Tour) -> None:
    tour.title("2. Devices are nested providers; a second discovery changes nothing")
    before = tour.generations()
    tour.check(
        "two FPGAs with three regions, four GPUs, a NUMA pair", holds=_devices(tour, before) == (3, 4, 2), found=before
    )
    tour.run("openstack accelerator device list -c type -c vendor -c hostname")
    traits = tour.run(f"openstack resource provider trait list {tour.provider(tour.regions()[0])} -f value")
    tour.region_id = _region_id(traits)


def discovered_again(tour: Tour) -> None:
    before = tour.generations()
    tour.stop()
    (tour.state / "provider_config" / "10-llc.yaml").write_text(LLC_LIST)
    tour.say("   restarted with the other form of `additional` (a list, as in files for Nova)")
    tour.start()
    after = tour.generations()
    tour.check("no generation changed: nothing was written", holds=before == after, found=(before, after))


def _devices(tour: Tour, names: dict[str, int]) -> tuple[int, int, int]:
    regions = sum("_R" in name for name in names)
    numa = sum("_NUMA_" in name for name in names)
    root = 1
    return regions, len(names) - regions - numa - root, numa


def custom_classes(tour: Tour) -> None:
    tour.title("3. Custom resource classes in flavors")
    (tour.state / "tiny.img").write_bytes(os.urandom(64 * 1024))
    tour.run(
        "openstack image create tiny --file tiny.img --disk-format raw --container-format bare"
        " -c name -c status -c size"
    )
    tour.run(
        "openstack flavor create llc2 --vcpus 2 --ram 512 --disk 1 --property resources:CUSTOM_LLC=2"
        " --property resources:VCPU=0 -c name -c vcpus -c ram -c properties"
    )
    tour.run("openstack server create llc-1 --flavor llc2 --image tiny --nic none --wait -c name -c status")
    server = tour.server("llc-1")
    tour.check("the server is ACTIVE", holds=server["status"] == "ACTIVE", found=server)
    tour.run(f"openstack resource provider allocation show {server['id']}")
    held = tour.allocation(server["id"])
    tour.check("it holds 2 CUSTOM_LLC", holds=held.get("CUSTOM_LLC") == 2, found=held)
    tour.check("and no VCPU", holds="VCPU" not in held, found=held)
    flavor = tour.record("openstack flavor show llc2")
    tour.check("the flavor still displays 2 vcpus", holds=flavor["vcpus"] == 2, found=flavor)
    tour.run("openstack server delete llc-1 --wait")


def bad_flavor(tour: Tour) -> None:
    message = tour.run("openstack flavor set --property resources:CUSTOM_LLC=-1 llc2", refused=True)
    tour.check("a negative amount is refused when the flavor is set", holds="CUSTOM_LLC" in message, found=message)


def _region_id(traits: str) -> str:
    """The region type, as bitstreams name it, from the region's trait."""
    for trait in traits.split():
        head, found, tail = trait.partition("_REGION_")
        if found and head.startswith("CUSTOM_FPGA_"):
            return tail.replace("_", "-").lower()
    raise Failed(f"the region carries no region trait, only {traits}")


def _upload(tour: Tour, name: str, function: str) -> None:
    (tour.state / f"{name}.gbs").write_bytes(os.urandom(200_000))
    tour.run(
        f"openstack image create {name} --file {name}.gbs --disk-format raw --container-format bare"
        f" --property function_uuid={function} --property region_uuid={tour.region_id} --tag FPGA --public"
        " -c name -c status -c size"
    )


def _function_flavor(tour: Tour, name: str, function: str) -> None:
    trait = f"trait:CUSTOM_FPGA_INTEL_REGION_{tour.region_id.upper().replace('-', '_')}"
    tour.run(
        f"openstack flavor create {name} --vcpus 1 --ram 256 --disk 1 --property resources:CUSTOM_ACCELERATOR_FPGA=1"
        f" --property {trait}=required --property accel:function_id={function} -c name"
    )


def programmed_accelerator(tour: Tour) -> None:
    tour.title("4. A server gets an FPGA function: programmed, attached, cleaned")
    _upload(tour, "aes-128", AES)
    _function_flavor(tour, "fpga.aes", AES)
    tour.run("openstack server create crypto-1 --flavor fpga.aes --image tiny --nic none --wait -c name -c status")
    server = tour.server("crypto-1")
    tour.check("the server is ACTIVE", holds=server["status"] == "ACTIVE", found=server)
    tour.run("openstack accelerator arq list -c state -c attach_handle_type -c attach_handle_info")
    address = _attached_address(tour, server["id"])
    domain = _domain(tour, server["id"])
    tour.say(domain)
    wanted = f'bus="0x{address[5:7]}" slot="0x{address[8:10]}" function="0x{address[11]}"'
    tour.check(f"the domain definition contains {address}", holds=wanted in domain.replace("'", '"'), found=wanted)
    traits = tour.run(f"openstack resource provider trait list {_provider_of(tour, server)} -f value")
    function = f"_FUNCTION_{AES.upper().replace('-', '_')}"
    tour.check("the region's provider carries the function's trait", holds=function in traits, found=traits)
    tour.run("openstack server delete crypto-1 --wait")
    _check_freed(tour, server["id"])


def _attached_address(tour: Tour, server_id: str) -> str:
    for row in tour.rows("openstack accelerator arq list --long"):
        info = row["attach_handle_info"]
        if row["instance_uuid"] == server_id and row["state"] == "Bound":
            info = info if isinstance(info, dict) else json.loads(info.replace("'", '"'))
            return f"{info['domain']}:{info['bus']}:{info['device']}.{info['function']}"
    raise Failed(f"no accelerator request is bound to {server_id}")


def _domain(tour: Tour, server_id: str) -> str:
    files = list(tour.state.rglob(f"{server_id}.xml"))
    return files[0].read_text() if files else ""


def _provider_of(tour: Tour, server: dict[str, Any]) -> str:
    """The provider of the server's accelerator."""
    rows = tour.rows(f"openstack resource provider allocation show {server['id']}")
    return str(next(row["resource_provider"] for row in rows if "CUSTOM_ACCELERATOR_FPGA" in row["resources"]))


def _check_freed(tour: Tour, server_id: str) -> None:
    tour.until("its allocations are gone", lambda: (not tour.allocation(server_id), tour.allocation(server_id)))
    rows = tour.rows("openstack accelerator arq list")
    tour.check("no accelerator is attached", holds=not rows, found=rows)
    tour.check("the domain is gone", holds=not _domain(tour, server_id), found=_domain(tour, server_id))


def two_bitstreams(tour: Tour) -> None:
    _upload(tour, "aes-128-again", AES)
    tour.run("openstack server create crypto-2 --flavor fpga.aes --image tiny --nic none -c name")
    tour.until(
        "with two bitstreams for one function, the server cannot be created",
        lambda: ((found := tour.server("crypto-2"))["status"] == "ERROR", found["status"]),
    )
    server = tour.server("crypto-2")
    fault = tour.fault("crypto-2")
    images = [tour.record(f"openstack image show {name}")["id"] for name in ("aes-128", "aes-128-again")]
    tour.check("the error names both", holds=all(image in fault for image in images), found=fault)
    held = tour.allocation(server["id"])
    tour.check("nothing stays allocated", holds=not held, found=held)
    tour.run("openstack server delete crypto-2 --wait", shown=False)
    tour.run("openstack image delete aes-128-again", shown=False)


def reservation(tour: Tour) -> None:
    tour.title("5. Three instances reserved on one host for one hour")
    tour.run("openstack reservation host create compute-1 -c hypervisor_hostname -c vcpus -c reservable")
    host = tour.provider("blazar_compute-1")
    now = tour.run("moorage clock")
    end = _minutes_after(now, 60)
    tour.run(
        "openstack reservation lease create team-a --start-date now"
        f' --end-date "{end}" --reservation'
        " resource_type=virtual:instance,vcpus=1,memory_mb=512,disk_gb=1,amount=3,affinity=None -c name -c status"
    )
    tour.until("the lease starts by itself", lambda: ((s := _lease(tour)["status"]) == "ACTIVE", s))
    rid = str(json.loads(str(_lease(tour)["reservations"]))["id"])
    name = f"CUSTOM_RESERVATION_{rid.upper().replace('-', '_')}"
    tour.run(f"openstack resource provider inventory list {host} -c resource_class -c total -c max_unit -c used")
    rows = tour.rows(f"openstack resource provider inventory list {host}")
    totals = {row["resource_class"]: row["total"] for row in rows}
    tour.check("blazar_compute-1 has 3 of the reservation's resource class", holds=totals == {name: 3}, found=totals)
    tour.run(f"openstack flavor show {rid} -c name -c access_project_ids -c os-flavor-access:is_public -c properties")
    for number in (1, 2, 3):
        tour.run(
            f"openstack server create team-{number} --flavor {rid} --image tiny --nic none --wait -c name -c status"
        )
    tour.run(f"openstack server create team-4 --flavor {rid} --image tiny --nic none -c name")
    tour.until(
        "the fourth server gets no valid host", lambda: ((s := tour.server("team-4"))["status"] == "ERROR", s["status"])
    )
    fault = tour.fault("team-4")
    tour.check("the fault names the reservation's class", holds="No valid host" in fault and name in fault, found=fault)
    tour.run("openstack flavor create plain --vcpus 1 --ram 64 --disk 1 -c name")
    tour.run("openstack server create stray --flavor plain --image tiny --nic none -c name")
    tour.until(
        "an ordinary server does not land on reserved capacity",
        lambda: ((s := tour.server("stray"))["status"] == "ERROR", s["status"]),
    )
    tour.fault("stray")
    for stray in ("stray", "team-4"):
        tour.run(f"openstack server delete {stray} --wait", shown=False)
    _lease_end(tour, rid, name, host)


def _lease_end(tour: Tour, rid: str, name: str, host: str) -> None:
    tour.run("moorage clock advance 1h")
    tour.until("the lease terminates at its end", lambda: ((s := _lease(tour)["status"]) == "TERMINATED", s))
    servers = tour.run("openstack server list --all-projects -f value -c Name", shown=False).split()
    tour.check("the servers are gone", holds=not any(name.startswith("team-") for name in servers), found=servers)
    flavors = tour.run("openstack flavor list --all -f value -c ID", shown=False).split()
    tour.check("the flavor is gone", holds=rid not in flavors, found=flavors)
    rows = tour.rows(f"openstack resource provider inventory list {host}")
    tour.check("the inventory is gone", holds=not rows, found=rows)
    classes = tour.run("openstack resource class list -f value", shown=False)
    tour.check("the class is gone", holds=name not in classes, found=classes)
    tour.run("openstack reservation lease delete team-a")
    number = tour.rows("openstack reservation host list")[0]["id"]
    tour.run(f"openstack reservation host delete {number}")


def _lease(tour: Tour) -> dict[str, Any]:
    return tour.record("openstack reservation lease show team-a")


def _minutes_after(iso: str, minutes: int) -> str:
    from datetime import datetime, timedelta

    return (datetime.fromisoformat(iso) + timedelta(minutes=minutes)).strftime("%Y-%m-%d %H:%M")


def killed(tour: Tour) -> None:
    tour.title("6. The whole plane is killed while a region is programmed")
    _upload(tour, "fft", FFT)
    _function_flavor(tour, "fpga.fft", FFT)
    control = tour.state / "accelerators" / "simulated" / "control.json"
    control.write_text('{"latency_s": {"program": 3}}')
    tour.say(f"   the simulated devices now take 3 s to program ({control.name})")
    tour.run("openstack server create spectrum-1 --flavor fpga.fft --image tiny --nic none -c name")
    _wait_for_programming(tour)
    tour.say("   a region is programmed now: kill -9")
    tour.stop(signal.SIGKILL)
    tour.start()
    tour.until(
        "the server becomes ACTIVE, or ERROR with a reason",
        lambda: (
            (s := tour.server("spectrum-1"))["status"] == "ACTIVE" or (s["status"] == "ERROR" and bool(s.get("fault"))),
            s["status"],
        ),
        timeout_s=90,
    )
    server = tour.server("spectrum-1")
    tour.say(f"   the server is {server['status']}; {server.get('fault') or 'no fault'}")
    held = tour.allocation(server["id"])
    expected = 1 if server["status"] == "ACTIVE" else 0
    tour.check("nothing is double-allocated", holds=held.get("CUSTOM_ACCELERATOR_FPGA", 0) == expected, found=held)
    tour.run("openstack server delete spectrum-1 --wait")
    tour.until("every accelerator is free again", lambda: _all_free(tour))


def _wait_for_programming(tour: Tour) -> None:
    """Waits until the simulated driver's state file shows that a region is being programmed."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        for file in tour.state.rglob("*.json"):
            try:
                if '"programming"' in file.read_text():
                    return
            except (OSError, UnicodeDecodeError):
                continue
        time.sleep(0.01)
    raise Failed("no region was programmed within 20 s")


def _all_free(tour: Tour) -> tuple[bool, object]:
    """Whether all devices exist and none is reserved or used."""
    generations = tour.generations()
    rows = tour.rows("openstack accelerator arq list")
    devices = _devices(tour, {name: 0 for name in generations if not name.startswith("blazar_")})
    reserved = {}
    for name in tour.regions():
        for row in tour.rows(f"openstack resource provider inventory list {tour.provider(name)}"):
            reserved[name] = (row["reserved"], row["used"])
    free = all(pair == (0, 0) for pair in reserved.values())
    return devices == (3, 4, 2) and not rows and free, (devices, rows, reserved)


STEPS: list[Callable[[Tour], object]] = [
    broken_files,
    provider_configuration,
    discovery,
    discovered_again,
    custom_classes,
    bad_flavor,
    programmed_accelerator,
    two_bitstreams,
    reservation,
    killed,
]
#: The steps without the error cases, which need only one start.
SHORT: list[Callable[[Tour], object]] = [
    _configuration_file,
    provider_configuration,
    discovery,
    custom_classes,
    programmed_accelerator,
    reservation,
]


@contextmanager
def plane_directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="moorage-tour-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


WELCOME = (
    (
        "The tour of Moorage, in two minutes. It starts all services on a simulated host with FPGAs and GPUs, drives "
        "them with the unmodified `openstack` client, and checks every answer (`ok:`). It shows\n"
    ),
    "  1. custom resources from a configuration file, and what happens if the file has a mistake",
    "  2. FPGAs and GPUs as nested resource providers",
    "  3. a flavor that asks for a custom resource",
    "  4. a server that gets an FPGA function: programmed, attached, cleaned",
    "  5. a lease that starts and ends by itself",
    "  6. the whole plane killed while it programs an FPGA\n",
    (
        "One `openstack` process runs many commands, because most of a command's time is the start of the client. Its "
        "message that 'reservation_host_unset' cannot be loaded is left out: it is a mistake in the packaging of "
        "python-blazarclient."
    ),
    "Ctrl-C stops everything.",
)

NEXT = """\
What to try next:

  moorage up --adjustable-clock      start a plane of your own (make up, in a checkout) and leave it running
  eval "$(moorage env)"              in another terminal: set the variables of the openstack client
  moorage explain "resources=VCPU:24"      ask why nothing fits

docs/first-hour.md goes on from there. The dashboard is at the address that `moorage up` prints."""

PAGE_HEAD = """\
# The tour

`make demo` prints this. It starts all services on a simulated host and drives them with the unmodified `openstack`
client: from a configuration file with a mistake to a kill of the whole process while it programs an FPGA. Ids are
shortened here. The program checks every answer and writes this page (`tools/demo.py --page`), and a test checks that
the page shows what the program prints (`tests/system/test_tour.py`).

<!-- run by: tests/system/test_tour.py::test_the_tour_succeeds_and_the_page_shows_its_output -->
```console
"""
_UUID = re.compile(r"\b([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
#: Durations depend on the machine.
_DURATION = re.compile(r"(ready after |starts of the client, )[\d.]+ s")
_UUID_IN_NAME = re.compile(r"([0-9A-F]{8})(?:_[0-9A-F]{4}){3}_[0-9A-F]{12}")


def page(tour: Tour) -> str:
    """docs/tour.md from what the tour has printed."""
    text = "\n".join(tour.transcript).replace(str(tour.state), "~/state").replace(str(tour.port), "8778")
    for pattern in (_UUID, _UUID_IN_NAME):
        text = pattern.sub(r"\1…", text)
    text = _DURATION.sub(r"\1… s", text)
    return PAGE_HEAD + text.strip() + "\n```\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=Path, required=True, help="bin directory with the openstack command")
    parser.add_argument("--moorage", type=Path, default=Path(sys.executable).with_name("moorage"))
    parser.add_argument("--state", type=Path, help="directory of the plane; it is kept")
    parser.add_argument("--short", action="store_true", help="half of the steps, in a quarter of the time")
    parser.add_argument("--page", type=Path, help="also write the page of the tour to this file")
    options = parser.parse_args()
    # If make or a CI job stops the tour, the plane must stop, too: sys.exit runs the `finally` below.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = time.monotonic()
    with plane_directory(options.state) as state:
        tour = Tour(options.clients.resolve(), options.moorage, state, free_port())
        kept = "which is kept" if options.state else "which is removed at the end"
        for line in (*WELCOME, f"Its files are in {tour.state}, {kept}."):
            tour.say(line)
        try:
            for step in SHORT if options.short else STEPS:
                step(tour)
        except (Failed, TimeoutError, subprocess.TimeoutExpired) as failure:
            tour.say(f"\nFAILED: {failure}")
            log = state / "moorage.log"
            if log.exists():
                print("\nThe end of the plane's log:", *log.read_text().splitlines()[-30:], sep="\n")
            return 1
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            tour.stop()
    tour.say(
        f"\nThe tour is done: {tour.checks} checks passed, {tour.commands} commands, {tour.client_starts} starts of the "
        f"client, {time.monotonic() - began:.0f} s."
    )
    tour.say(f"\n{NEXT}")
    if options.page:
        options.page.write_text(page(tour), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
