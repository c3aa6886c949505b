"""All commands of the unmodified osc-placement print the same with our service as with OpenStack's Placement, and print
what the API answers.
"""

import contextlib
import json
import subprocess
from pathlib import Path

import pytest

from tests.conformance.conform import our_servers_on, upstream_server
from tests.conformance.wire import Api
from tests.processes import openstack, python_of
from tests.servers import temporary_database

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.conformance]

HOST, CHILD, DISK, GONE = (f"00000000-0000-4000-a000-00000000000{number}" for number in range(1, 5))
SERVER, OTHER = (f"00000000-0000-4000-b000-00000000000{number}" for number in range(1, 3))
AGGREGATE = "00000000-0000-4000-c000-000000000001"

#: The commands in order, with every command and every option of osc-placement.
COMMANDS = f"""
resource class create CUSTOM_GOLD
resource class set CUSTOM_SILVER
resource class show CUSTOM_GOLD
resource class list
resource class delete CUSTOM_SILVER
resource class delete CUSTOM_SILVER
trait create CUSTOM_FAST
trait create CUSTOM_SLOW
trait show CUSTOM_FAST
trait show CUSTOM_NO
trait list --name startswith:CUSTOM_
trait list --associated
trait delete CUSTOM_SLOW
resource provider create host --uuid {HOST}
resource provider create child --uuid {CHILD} --parent-provider {HOST}
resource provider create disk --uuid {DISK}
resource provider create gone --uuid {GONE}
resource provider create host
resource provider set {DISK} --name disks
resource provider set {GONE} --name gone --parent-provider {CHILD}
resource provider set {GONE} --name gone --parent-provider {DISK}
resource provider set {HOST} --name host --parent-provider {GONE}
resource provider set {GONE} --name gone --parent-provider {HOST}
resource provider set {HOST} --name host --parent-provider {CHILD}
resource provider inventory set {HOST} --resource VCPU=8 --resource VCPU:allocation_ratio=2.0 --resource MEMORY_MB=4096
resource provider inventory set {HOST} --resource DISK_GB=100 --resource DISK_GB:reserved=10 --amend
resource provider inventory set {HOST} --resource VGPU=9 --amend --dry-run
resource provider inventory set {CHILD} --resource VGPU=4 --resource CUSTOM_GOLD=2
resource provider inventory set {DISK} --resource DISK_GB=1000 --resource VGPU=1
resource provider inventory class set {CHILD} VGPU --total 6 --reserved 1 --min_unit 1 --max_unit 4 --step_size 1 --allocation_ratio 1.5
resource provider inventory class set {CHILD} VGPU --reserved 1
resource provider inventory show {CHILD} VGPU
resource provider inventory show {CHILD} VCPU
resource provider inventory list {HOST}
resource provider inventory delete {DISK} --resource-class VGPU
resource provider inventory delete {DISK} --resource-class VGPU
resource provider trait set {HOST} --trait CUSTOM_FAST --trait HW_CPU_X86_AVX2
resource provider trait set {DISK} --trait MISC_SHARES_VIA_AGGREGATE
resource provider trait list {HOST}
resource provider aggregate set {DISK} --aggregate {AGGREGATE} --generation 4
resource provider aggregate set {HOST} --aggregate {AGGREGATE} --generation 0
resource provider aggregate set {HOST} --aggregate {AGGREGATE} --generation 3
resource provider aggregate list {HOST}
resource provider inventory set {AGGREGATE} --aggregate --resource DISK_GB=500 --amend
resource provider list
resource provider list --uuid {HOST}
resource provider list --name disks
resource provider list --resource VCPU=16
resource provider list --resource VCPU=17
resource provider list --in-tree {CHILD}
resource provider list --required CUSTOM_FAST
resource provider list --required CUSTOM_FAST,HW_CPU_X86_SSE
resource provider list --forbidden CUSTOM_FAST
resource provider list --member-of {AGGREGATE}
resource provider list --aggregate-uuid {AGGREGATE}
resource provider show {HOST}
resource provider show {HOST} --allocations
allocation candidate list --resource VCPU=1 --resource DISK_GB=5
allocation candidate list --resource VCPU=1 --limit 1
allocation candidate list --resource VCPU=1 --required CUSTOM_FAST --forbidden HW_CPU_X86_SSE
allocation candidate list --resource VCPU=1 --member-of {AGGREGATE}
allocation candidate list --resource VCPU=1 --aggregate-uuid {AGGREGATE}
allocation candidate list --group 1 --resource VCPU=1 --group 2 --resource VGPU=1 --group-policy none
allocation candidate list --group 1 --resource VGPU=1 --group 2 --resource VGPU=1 --group-policy isolate
resource provider allocation set {SERVER} --allocation rp={HOST},VCPU=2 --allocation rp={CHILD},VGPU=1,CUSTOM_GOLD=1 --project-id red --user-id alice --consumer-type INSTANCE
resource provider allocation set {SERVER} --allocation rp={HOST},VCPU=4 --allocation rp={CHILD},VGPU=1 --project-id red --user-id alice --consumer-type INSTANCE
resource provider allocation set {OTHER} --allocation rp={HOST},VCPU=99 --project-id red --user-id bob --consumer-type INSTANCE
resource provider allocation set {OTHER} --allocation rp={HOST},VCPU=1,MEMORY_MB=64 --allocation rp={DISK},DISK_GB=5 --project-id red --user-id bob --consumer-type MIGRATION
resource provider allocation show {SERVER}
resource provider show {HOST} --allocations
resource provider usage show {HOST}
resource usage show red
resource usage show red --user-id bob
resource provider inventory delete {HOST}
resource provider delete {HOST}
resource provider allocation unset {OTHER} --provider {DISK}
resource provider allocation unset {OTHER} --resource-class MEMORY_MB
resource provider allocation unset {OTHER} --provider {HOST} --resource-class VCPU
resource provider allocation delete {SERVER}
resource provider allocation delete {SERVER}
resource provider allocation show {SERVER}
resource provider trait delete {HOST}
resource provider inventory delete {HOST}
resource provider inventory list {HOST}
resource provider delete {GONE}
resource provider delete {CHILD}
resource provider delete {HOST}
resource provider show {HOST}
""".strip().splitlines()

#: Commands with an older version, which has other bodies and other columns.
OLD_VERSIONS = ["1.0", "1.8", "1.12", "1.28"]
OLD_COMMANDS = f"""
resource provider create host --uuid {HOST}
resource provider inventory set {HOST} --resource VCPU=8
resource provider inventory list {HOST}
resource provider aggregate set {HOST} --aggregate {AGGREGATE}
resource provider aggregate set {HOST} --aggregate {AGGREGATE} --generation 1
resource provider aggregate list {HOST}
resource provider list
resource provider allocation set {SERVER} --allocation rp={HOST},VCPU=2
resource provider allocation set {SERVER} --allocation rp={HOST},VCPU=2 --project-id red --user-id alice
resource provider allocation show {SERVER}
resource provider show {HOST} --allocations
resource provider usage show {HOST}
resource provider allocation delete {SERVER}
resource provider inventory delete {HOST} --resource-class VCPU
resource provider delete {HOST}
""".strip().splitlines()


@pytest.fixture(scope="module")
def both():
    """(URL of upstream, URL of ours)"""
    with contextlib.ExitStack() as stack:
        databases = [stack.enter_context(temporary_database("sqlite")) for _ in range(2)]
        upstream = stack.enter_context(upstream_server(databases[0]))
        ours = stack.enter_context(our_servers_on(databases[1], front="server"))
        yield upstream, ours["default"]


def run_commands(url, version, commands):
    """The client's answers, each with its output as JSON if the command has a format option."""
    variables = {
        "OS_AUTH_TYPE": "admin_token",
        "OS_ENDPOINT": url,
        "OS_TOKEN": "admin",
        "OS_PLACEMENT_API_VERSION": version,
    }
    shown = ("list", "show", "set", "create", "unset")
    lines = [command.split() for command in commands]
    asked = [[*line, "-f", "json"] if _prints(line, shown) else line for line in lines]
    return [(said.status, _document(said.out), said.err.replace(url, "URL")) for said in openstack(variables, *asked)]


#: Commands that print nothing, and so have no format option.
_SILENT = ("resource class set", "resource class create", "trait create")


def _prints(line, shown):
    words = " ".join(line)
    return not words.startswith(_SILENT) and any(word in line[:4] for word in shown)


def _document(out):
    try:
        return _unordered(json.loads(out))
    except ValueError:
        return out


def _unordered(value):
    if isinstance(value, dict):
        return {name: _unordered(one) for name, one in value.items()}
    return sorted(map(_unordered, value), key=json.dumps) if isinstance(value, list) else value


def test_every_command_and_every_option_is_used():
    listed = subprocess.run(
        [python_of(".venv-clients"), Path(__file__).with_name("osc_commands.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    for command, arguments in json.loads(listed.stdout).items():
        used = [line for line in COMMANDS if line.startswith(f"{command} ") or line == command]
        assert used, f"{command} is in no line of COMMANDS"
        options = {argument for argument in arguments if argument.startswith("--")}
        assert options <= {word for line in used for word in line.split()}, command


def test_every_command_prints_the_same_as_with_upstream_placement(both):
    upstream, ours = both
    expected, said = run_commands(upstream, "1.39", COMMANDS), run_commands(ours, "1.39", COMMANDS)
    differing = [each for each in zip(COMMANDS, expected, said, strict=True) if each[1] != each[2]]
    assert differing == []
    # Nearly all commands must succeed, because two servers that refuse everything also agree.
    assert sum(status == 0 for status, _, _ in said) > len(COMMANDS) * 3 / 4


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_commands_with_an_older_version_print_the_same_as_with_upstream_placement(both, version):
    upstream, ours = both
    expected, said = run_commands(upstream, version, OLD_COMMANDS), run_commands(ours, version, OLD_COMMANDS)
    assert [each for each in zip(OLD_COMMANDS, expected, said, strict=True) if each[1] != each[2]] == []


def test_commands_print_what_the_api_answers(both):
    ours = both[1]
    api = Api(ours)
    owner = "--project-id red --user-id alice --consumer-type INSTANCE"
    commands = [
        f"resource provider create host --uuid {HOST}",
        f"resource provider inventory set {HOST} --resource VCPU=8",
        f"resource provider allocation set {SERVER} --allocation rp={HOST},VCPU=2 {owner}",
        f"resource provider inventory list {HOST}",
        f"resource provider usage show {HOST}",
        f"resource provider allocation show {SERVER}",
        "resource provider list",
    ]
    *_, (_, inventories, _), (_, usages, _), (_, allocations, _), (_, listed, _) = run_commands(ours, "1.39", commands)
    told = api("GET", f"/resource_providers/{HOST}/inventories", "1.39")["inventories"]
    assert inventories == [{"resource_class": "VCPU", "used": 2, **told["VCPU"]}]
    assert usages == [{"resource_class": "VCPU", "usage": 2}]
    assert api("GET", f"/resource_providers/{HOST}/usages", "1.39")["usages"] == {"VCPU": 2}
    held = api("GET", f"/allocations/{SERVER}", "1.39")["allocations"][HOST]
    assert [(one["resource_provider"], one["generation"], one["resources"]) for one in allocations] == [
        (HOST, held["generation"], held["resources"])
    ]
    known = api("GET", "/resource_providers", "1.39")["resource_providers"]
    assert sorted(one["uuid"] for one in listed) == sorted(one["uuid"] for one in known)
