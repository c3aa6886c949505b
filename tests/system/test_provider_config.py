"""`moorage provider-config` and a running plane: checks, previews, applies without a restart, and undoes."""

import json
import os
import pty
import signal
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.system.planes import MOORAGE, PlaneProcess, moorage, until, write_config

pytestmark = pytest.mark.slow

LLC = """# kept with its comments
meta: {schema_version: '1.0'}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories: {additional: {CUSTOM_LLC: {total: 22}}}
    traits: {additional: [CUSTOM_P_STATE_ENABLED]}
"""
WAYS = LLC.replace("CUSTOM_LLC", "CUSTOM_WAYS").replace("CUSTOM_P_STATE_ENABLED", "CUSTOM_FAST")


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """A plane that reads its provider files only on request, so that the effect of each command shows."""
    directory: Path = tmp_path_factory.mktemp("plane")
    write_config(
        directory,
        plane={"log_file": "moorage.log"},
        server={"port": free_port()},
        compute={"provider_config_watch_s": 0.0},
    )
    with PlaneProcess(directory / "moorage.conf") as process:
        yield process


@pytest.fixture
def files(process):
    """The directory of the provider files, emptied before and after each test."""
    directory = process.state / "provider_config"
    empty(process, directory)
    yield directory
    empty(process, directory)


def empty(process, directory):
    for path in directory.iterdir():
        path.unlink()
    assert command(process, "apply")[0] == 0


@pytest.fixture
def elsewhere(tmp_path):
    path = tmp_path / "candidates"
    path.mkdir()
    return path


def command(process, *words):
    """(exit status, standard output, standard error)"""
    done = moorage("provider-config", words[0], "--config", process.config, *words[1:])
    return done.returncode, done.stdout, done.stderr


def custom(process):
    """Custom classes and traits of the host."""
    placement = process.clients().placement
    root = placement.get("/resource_providers?name=compute-1")["resource_providers"][0]["uuid"]
    classes = placement.get(f"/resource_providers/{root}/inventories")["inventories"]
    traits = placement.get(f"/resource_providers/{root}/traits")["traits"]
    return {name for name in [*classes, *traits] if name.startswith("CUSTOM_")}


def test_validate_prints_all_errors_and_needs_no_agent(tmp_path):
    directory = tmp_path / "files"
    directory.mkdir()
    (directory / "a.yaml").write_text(LLC.replace("CUSTOM_LLC", "VCPU").replace("total: 22", "total: 0"))
    (directory / "b.yaml").write_bytes(b"meta: \xff\n")

    def validate(*words):
        return moorage("provider-config", "validate", *words, XDG_STATE_HOME=str(tmp_path / "nowhere"))

    done = validate(directory)
    assert done.returncode == 1
    assert f"{directory}/a.yaml:5:32: providers[0].inventories.additional.VCPU: 'VCPU' is not allowed" in done.stdout
    assert f"{directory}/a.yaml:5:39: providers[0].inventories.additional.VCPU.total: 0 is out of range" in done.stdout
    assert f"{directory}/b.yaml:1:7: is not UTF-8 text; save the file in the encoding UTF-8" in done.stdout
    assert "3 errors" in done.stderr
    document = json.loads(validate("--json", directory).stdout)
    assert [(Path(fault["file"]).name, fault["line"], fault["column"]) for fault in document["faults"]] == [
        ("a.yaml", 5, 32), ("a.yaml", 5, 39), ("b.yaml", 1, 7),
    ]  # fmt: skip
    assert all(fault["problem"] and fault["remedy"] for fault in document["faults"])
    (directory / "b.yaml").unlink()
    (directory / "a.yaml").write_text(LLC)
    done = validate(directory)
    assert (done.returncode, done.stdout) == (0, f"{directory}: 1 file, 1 entry, no errors.\n")
    (directory / "a.yaml").write_text(LLC + "    colour: red\n")
    assert "warning: " in validate(directory).stdout
    assert validate("--strict", directory).returncode == 1


def test_the_printed_schema_is_the_one_that_validates_the_files():
    done = moorage("provider-config", "schema")
    assert done.returncode == 0
    shipped = Path(__file__).parents[2] / "src/moorage/agent/schemas/provider_config_1.json"
    assert json.loads(done.stdout) == json.loads(shipped.read_text())


def test_the_printed_sample_is_valid(tmp_path):
    done = moorage("provider-config", "sample")
    assert done.returncode == 0
    (tmp_path / "sample.yaml").write_text(done.stdout)
    assert moorage("provider-config", "validate", "--strict", tmp_path).returncode == 0


def test_files_of_another_directory_can_be_planned_applied_and_undone(process, files, elsewhere):
    (files / "a.yaml").write_text(LLC)
    (files / "a.yaml").chmod(0o644)
    assert command(process, "apply")[0] == 0
    assert custom(process) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"}
    (elsewhere / "b.yaml").write_text(WAYS)
    status, out, _ = command(process, "plan", elsewhere)
    assert status == 0
    for line in ("remove CUSTOM_LLC", "add CUSTOM_WAYS", "add trait CUSTOM_FAST", "remove trait CUSTOM_P_STATE"):
        assert line in out
    assert custom(process) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"}
    status, out, _ = command(process, "apply", elsewhere)
    assert status == 0
    assert "On compute-1, changed:" in out
    assert custom(process) == {"CUSTOM_WAYS", "CUSTOM_FAST"}
    assert [path.name for path in files.iterdir()] == ["b.yaml"]
    status, out, _ = command(process, "undo")
    assert status == 0
    assert "add CUSTOM_LLC" in out
    assert custom(process) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"}
    assert {path.name: path.read_text() for path in files.iterdir()} == {"a.yaml": LLC}
    assert command(process, "undo")[0] == 0
    assert custom(process) == {"CUSTOM_WAYS", "CUSTOM_FAST"}
    assert all(len(line) <= 100 for line in out.splitlines())


def test_refused_files_change_neither_the_host_nor_its_files(process, files, elsewhere):
    (files / "a.yaml").write_text(LLC)
    assert command(process, "apply")[0] == 0
    (elsewhere / "a.yaml").write_text(WAYS.replace("uuid: $COMPUTE_NODE", "name: compute-1_0000:17:00.0").replace(
        "CUSTOM_WAYS", "CUSTOM_ACCELERATOR_GPU"))  # fmt: skip
    for verb in ("plan", "apply"):
        status, _, err = command(process, verb, elsewhere)
        assert status == 1
        assert "CUSTOM_ACCELERATOR_GPU of provider compute-1_0000:17:00.0 is managed by" in err
    assert (files / "a.yaml").read_text() == LLC
    assert custom(process) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"}
    (files / "a.yaml").write_text("meta: [\n")
    status, _, err = command(process, "apply")
    assert status == 1
    assert f"{files}/a.yaml:2:1: is not YAML" in err
    assert custom(process) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"}


def test_a_removed_class_in_use_is_closed_to_new_servers_and_deleted_when_it_is_free(process, files):
    (files / "a.yaml").write_text(LLC)
    assert command(process, "apply")[0] == 0
    clients = process.clients()
    flavor = clients.create_flavor("llc", **{"resources:CUSTOM_LLC": "3"})
    server = clients.create_server(flavor=flavor, name="cache-lover")
    clients.wait_for_status(server, "ACTIVE")
    (files / "a.yaml").unlink()
    status, out, _ = command(process, "plan")
    assert status == 0
    assert "close CUSTOM_LLC" in out
    assert "3 CUSTOM_LLC of compute-1 are in use; no new allocations; existing ones stay until released:" in out
    assert f"3 by server cache-lover ({server})" in out
    document = json.loads(command(process, "apply", "--json")[1])
    (change,) = document["providers"][0]["classes"]
    assert (change["how"], change["after"]["reserved"], change["users"][0]["server"]) == ("close", 22, "cache-lover")
    assert "CUSTOM_LLC" in custom(process)
    clients.compute.request("DELETE", f"/servers/{server}")
    clients.wait_until_gone(server)
    until(lambda: not clients.allocations(server))
    assert command(process, "apply")[0] == 0
    assert custom(process) == set()


def test_sighup_applies_the_files_and_keeps_the_last_valid_configuration(process, files):
    worker = process.members()
    (files / "a.yaml").write_text(LLC)
    process.process.send_signal(signal.SIGHUP)
    until(lambda: custom(process) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"})
    (files / "a.yaml").write_text("broken: [")
    process.process.send_signal(signal.SIGHUP)
    until(lambda: "the last accepted one stays in force" in process.log)
    assert custom(process) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"}
    assert process.members() == worker


def test_without_an_agent_the_commands_fail_and_say_so(tmp_path):
    config = write_config(tmp_path)
    (tmp_path / "lies.yaml").write_text("")
    for verb in ("plan", "apply", "undo"):
        done = moorage("provider-config", verb, "--config", config.source)
        assert done.returncode == 2
        assert "no agent runs here" in done.stderr


def test_a_plane_that_watches_its_files_applies_a_change_by_itself(tmp_path):
    write_config(
        tmp_path, plane={"log_file": "moorage.log"}, server={"port": free_port()},
        compute={"provider_config_watch_s": 0.2},
    )  # fmt: skip
    with PlaneProcess(tmp_path / "moorage.conf") as process:
        path = tmp_path / "provider_config" / "a.yaml"
        path.write_text(LLC)
        until(lambda: custom(process) == {"CUSTOM_LLC", "CUSTOM_P_STATE_ENABLED"})
        path.write_text(WAYS)
        until(lambda: custom(process) == {"CUSTOM_WAYS", "CUSTOM_FAST"})
        path.unlink()
        until(lambda: custom(process) == set())


def test_a_plane_in_a_terminal_stops_when_the_terminal_closes(tmp_path):
    """SIGHUP from a closing terminal ends it instead of only reloading files."""
    config = write_config(tmp_path, plane={"log_file": "moorage.log"}, server={"port": free_port()}).source
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(MOORAGE, [str(MOORAGE), "up", "--config", str(config)])
    try:
        said = b""
        while b"Moorage is up" not in said:
            said += os.read(terminal, 4096)
        os.close(terminal)
        until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid)
    except BaseException:  # also a time limit of pytest must not leave the process; raised again
        os.kill(pid, signal.SIGKILL)
        raise
    assert not (tmp_path / "agent.sock").exists()
