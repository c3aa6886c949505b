"""`moorage audit` and `moorage explain` as operators run them: from a shell, against a running plane."""

import json
import subprocess

import pytest

from moorage.identity.first_start.first_credentials import first_credentials
from tests.ports import free_port
from tests.system import planes
from tests.system.planes import PlaneProcess

pytestmark = pytest.mark.slow

ORPHAN = "00000001-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    config = tmp_path_factory.mktemp("plane") / "state" / "moorage.conf"
    with PlaneProcess(config, "--port", str(free_port())) as plane:
        yield plane


def moorage(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = planes.moorage(*arguments, **environment)
    assert "Traceback" not in done.stderr
    return done


def is_narrow(text: str) -> bool:
    """Whether lines have at most 100 columns, except for a command to copy, which must stay on one line."""
    return all(len(line) <= 100 for line in text.splitlines() if "moorage explain" not in line)


def config_of(plane: PlaneProcess) -> tuple[str, str]:
    return "--config", str(plane.config)


def os_variables(plane: PlaneProcess) -> dict[str, str]:
    password, project = first_credentials(plane.state, "admin")
    return {
        "OS_AUTH_URL": f"{plane.url}/identity",
        "OS_USERNAME": "admin",
        "OS_PASSWORD": password,
        "OS_PROJECT_NAME": project,
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_NAME": "Default",
    }


# --- audit ------------------------------------------------------------------------------------------------------


def add_orphan_allocation(plane: PlaneProcess) -> None:
    placement = plane.clients().placement
    providers = placement.get("/resource_providers")["resource_providers"]
    host = next(row["uuid"] for row in providers if row["name"] == "compute-1")
    body = {
        "allocations": {host: {"resources": {"VCPU": 2}}}, "project_id": "alpha", "user_id": "ann",
        "consumer_generation": None, "consumer_type": "INSTANCE",
    }  # fmt: skip
    placement.request("PUT", f"/allocations/{ORPHAN}", json=body)


def test_the_exit_status_of_audit_tells_whether_it_found_anything(plane, tmp_path):
    clean = moorage("audit", *config_of(plane))
    assert (clean.returncode, clean.stdout) == (0, "10 providers and no consumers: no findings.\n")
    add_orphan_allocation(plane)
    young = moorage("audit", *config_of(plane))
    assert young.returncode == 0
    assert "Not checked: 1 unknown consumer younger than the grace period." in young.stdout
    found = moorage("audit", "--grace", "0s", *config_of(plane))
    assert found.returncode == 1
    assert ORPHAN in found.stdout
    assert is_narrow(found.stdout)
    assert "Nothing was changed. Run `moorage audit --fix` to make the safe repairs." in found.stdout
    receipt = tmp_path / "receipt.jsonl"
    fixed = moorage("audit", "--grace", "0s", "--fix", "--receipt", str(receipt), *config_of(plane))
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert "no findings left" in fixed.stdout
    assert json.loads(receipt.read_text().splitlines()[0])["finding"]["subject"] == ORPHAN
    assert moorage("audit", "--grace", "0s", *config_of(plane)).returncode == 0, "and so it stays"


def test_audit_reads_the_variables_of_the_stock_clients(plane):
    done = moorage("audit", "--json", **os_variables(plane))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["providers"], said["findings"]) == (10, [])
    all_names = moorage("audit", "--names", "--freepool", "pool", "--json", **os_variables(plane))
    assert (all_names.returncode, json.loads(all_names.stdout)["findings"]) == (0, [])


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (("--grace", "ten"), {}, "'ten' is not a period"),
        (("--also", ORPHAN), {}, "--also needs --fix"),
        (("--fix", "--also", "x"), {}, "--also 'x' is not a UUID"),
        (("--fix", "--also", ORPHAN), {}, f"cannot repair {ORPHAN}"),
        ((), {"OS_PASSWORD": "wrong"}, "identity answered 401"),
        ((), {"OS_AUTH_URL": "http://127.0.0.1:9/identity"}, "does not answer"),
        ((), {"OS_USERNAME": ""}, "OS_AUTH_URL is set, but not OS_USERNAME"),
        ((), {"OS_PROJECT_DOMAIN_NAME": "other"}, "set OS_PROJECT_DOMAIN_ID"),
    ],
)
def test_an_audit_that_fails_exits_with_status_2(plane, arguments, variables, said):
    done = moorage("audit", *arguments, **os_variables(plane) | variables)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


# --- explain ----------------------------------------------------------------------------------------------------


def test_explain_prints_the_filter_steps_the_closest_hosts_and_the_smallest_change(plane):
    done = moorage("explain", "resources=VCPU:40,MEMORY_MB:512&required=HW_CPU_X86_AVX2", *config_of(plane))
    assert done.returncode == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[1] == "No host fits."
    assert is_narrow(done.stdout)
    assert any(line.startswith("resources:VCPU=40 1 0 compute-1 has ") for line in lines)
    changed = next(line for line in lines if line.startswith("moorage explain "))
    again = moorage("explain", changed.removeprefix("moorage explain ").strip("'"), *config_of(plane))
    assert "1 candidate on 1 of 1 hosts." in again.stdout, "the change makes it fit"


def test_explain_of_a_flavor_uses_the_query_of_its_servers(plane):
    flavor = plane.clients().create_flavor("gold", **{"resources:CUSTOM_ACCELERATOR_FPGA": "9"})
    done = moorage("explain", "--flavor", flavor, "--json", **os_variables(plane))
    said = json.loads(done.stdout)
    assert said["query"].startswith("resources=CUSTOM_ACCELERATOR_FPGA:9,DISK_GB:1,MEMORY_MB:64,VCPU:1&root_required=!")
    assert said["candidates"] == 0
    assert [step["after"] for step in said["steps"]][-1] == 0
    assert said["change"]["provider"] == "compute-1"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("resources",), 1, "'resources', which is not name=value"),
        (("resources=VCPU:1&=2",), 1, "'=2', which is not name=value"),
        (("",), 1, "the query is empty"),
        (("resources=VCPU:x",), 1, "Requested resource VCPU expected positive integer amount. Got: x."),
        (("resources=NONE:1",), 1, "No such resource class NONE"),
        (("nonsense=1",), 1, "Placement rejects the query nonsense=1"),
        (("--flavor", "none"), 1, "no flavor 'none' found"),
        ((), 2, "give either a query"),
        (("resources=VCPU:1", "--flavor", "x"), 2, "give either a query"),
    ],
)
def test_an_invalid_query_is_refused_with_one_sentence(plane, arguments, status, said):
    done = moorage("explain", *arguments, *config_of(plane))
    assert done.returncode == status
    assert said in " ".join(done.stderr.split())


def test_output_has_no_colours_in_a_pipe_or_with_no_color(plane):
    query = ("explain", "resources=VCPU:40", *config_of(plane))
    assert "\x1b" not in moorage(*query).stdout
    assert "\x1b" not in moorage(*query, FORCE_COLOR="1", NO_COLOR="1").stdout
    assert "\x1b" in moorage(*query, FORCE_COLOR="1").stdout
