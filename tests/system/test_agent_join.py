"""`moorage agent join` against services over TLS: files, credential, checks, repetition after a kill, systemd's unit."""

import hashlib
import shlex
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from moorage.cli.agent import command, plan, unit
from moorage.cli.doctor.machine import HostMachine
from moorage.config import load_config
from tests.certificates import make_certificates
from tests.ports import free_port
from tests.system.planes import PlaneProcess, moorage, until, write_config
from tests.system.test_spread_out import SERVICES, enrol, hosts_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    state = tmp_path_factory.mktemp("services")
    make_certificates(state)
    write_config(
        state,
        plane={"services": ",".join(SERVICES)},
        server={"port": free_port(), "certificate_file": "moorage.crt", "key_file": "moorage.key"},
        endpoints={"ca_file": "ca.crt"},
    )
    with PlaneProcess(state / "moorage.conf") as running:
        yield running


@pytest.fixture
def host(request):
    """A name that no other test has."""
    return f"host-{hashlib.sha256(request.node.name.encode()).hexdigest()[:8]}"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without systemd, which shows the directory of its files."""
    monkeypatch.setattr(command, "HostMachine", lambda: HostMachine(root=tmp_path / "root"))
    return tmp_path


def words(services, machine, *more, ca=True):
    """The command for a host with simulated guests, whose files are below `machine`."""
    config = machine / "etc" / "agent.conf"
    options = {
        "plane.state_path": machine / "state",
        "agent.virt_driver": "simulated",
        "agent.poll_period_s": 0.2,
        "agent.heartbeat_period_s": 1,
        "server.port": machine_port(machine),
    }
    trust = ["--ca-file", services.state / "ca.crt"] if ca else []
    return [
        *("agent", "join", services.url, "--config", config, *trust),
        *(word for name, value in options.items() for word in ("--set", f"{name}={value}")),
        *more,
    ]


def machine_port(machine):
    """The same for each command on one machine."""
    path = machine / "port"
    if not path.exists():
        path.write_text(str(free_port()))
    return path.read_text()


def joined_here(services, machine, *more, **options):
    """Runs the command in this process, so that a test can replace parts of it."""
    given = list(map(str, words(services, machine, *more, **options)[1:]))
    return CliRunner(catch_exceptions=False).invoke(command.agent, given)


def files_of(machine):
    return sorted(
        str(path.relative_to(machine)) for path in machine.rglob("*") if path.is_file() and path.name != "port"
    )


def test_one_command_makes_a_machine_a_host_whose_agent_builds_a_server(services, machine, host):
    token = enrol(services, host).strip()
    done = moorage(*words(services, machine, "--token", token))
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.endswith(f"moorage up --config {machine}/etc/agent.conf")
    assert "systemd does not run here" in done.stdout
    config = load_config(machine / "etc/agent.conf")
    modes = {
        path: stat.S_IMODE(path.stat().st_mode) for path in (config.source, config.credential_of(host), config.state)
    }
    assert list(modes.values()) == [0o600, 0o600, 0o711]
    assert config.ca_file.read_bytes() == (services.state / "ca.crt").read_bytes()
    assert str(Path.home()) not in config.source.read_text().replace(str(machine), "")
    assert hosts_of(services)[host] == "enrolled"
    with PlaneProcess(config.source):
        clients = services.clients()
        until(lambda: host in [row["host"] for row in clients.compute.get("/os-services")["services"]])
        server = clients.create_server(flavor=clients.create_flavor("joined"))
        clients.wait_for_status(server, "ACTIVE")


def test_a_check_writes_nothing_and_needs_no_token(services, machine, host):
    done = joined_here(services, machine, "--check")
    # The certificates of the tests are valid for a day, which is a warning.
    assert done.exit_code == 1, done.output
    assert "0 broken, 1 warnings" in done.output
    assert "endpoint:identity" in done.output
    assert "its clock agrees with this machine's" in done.output
    assert files_of(machine) == []


def test_a_host_that_lacks_programs_is_told_their_packages_and_keeps_its_token(services, machine, host, monkeypatch):
    token = enrol(services, host).strip()
    monkeypatch.setattr(command, "HostMachine", lambda: HostMachine(root=machine / "root", search=""))
    done = joined_here(services, machine, "--set", "agent.virt_driver=libvirt", "--token", token)
    assert done.exit_code == 3
    assert "apt-get install qemu-system-x86 qemu-utils genisoimage" in done.output
    assert "apt-get install libvirt-daemon-system" in done.output
    assert "the token was not used" in done.output
    assert files_of(machine) == []
    assert hosts_of(services)[host] == "invited"


def test_a_repeated_join_changes_nothing_and_keeps_the_credential(services, machine, host):
    token = enrol(services, host).strip()
    assert joined_here(services, machine, "--token", token).exit_code == 0
    before = {name: (machine / name).read_bytes() for name in files_of(machine)}
    again = joined_here(services, machine, "--token", token)
    assert again.exit_code == 0, again.output
    assert "agent.conf is there already, and is kept" in again.output
    assert f"{host} has joined before" in again.output
    assert {name: (machine / name).read_bytes() for name in files_of(machine)} == before


def test_an_option_that_the_operator_added_stays_and_one_that_contradicts_is_refused_by_its_name(
    services, machine, host
):
    token = enrol(services, host).strip()
    assert joined_here(services, machine, "--token", token).exit_code == 0
    path = machine / "etc/agent.conf"
    own = path.read_text() + "\n[agent]\nworkers = 9\n"
    path.write_text(own)
    assert joined_here(services, machine, "--token", token).exit_code == 0
    assert path.read_text() == own
    refused = moorage(*words(services, machine, "--token", token, "--set", "agent.workers=2"))
    assert refused.returncode == 1
    assert "agent.conf ([agent] workers)" in refused.stderr
    assert "Nothing was written" in refused.stderr
    assert path.read_text() == own
    replaced = joined_here(services, machine, "--token", token, "--set", "agent.workers=2", "--replace")
    assert replaced.exit_code == 0
    assert "the former file is" in replaced.output
    assert load_config(path).agent.workers == 2
    assert (machine / "etc/agent.conf.before").read_text() == own


class Killed(BaseException):
    """Not caught by anything, as the end of a process."""


def dying(monkeypatch, where):
    """Lets the command die once: before or after a file, before or after the exchange, or before the start."""
    module, name, call, runs_first = where
    original, calls = getattr(module, name), []

    def step(*args, **options):
        calls.append(1)
        if len(calls) == call and not runs_first:
            raise Killed
        result = original(*args, **options)
        if len(calls) == call:
            raise Killed
        return result

    monkeypatch.setattr(module, name, step)


POINTS = {
    "before the first file": (plan, "write_file", 1, False),
    "between two files": (plan, "write_file", 1, True),
    "after the files": (plan, "write_file", 2, True),
    "before the exchange": (command, "enrol_or_keep", 1, False),
    "after the exchange": (command, "enrol_or_keep", 1, True),
    "before the start": (command, "_start", 1, False),
    "after the start": (command, "_start", 1, True),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_join_can_be_repeated_with_the_same_token(services, machine, host, monkeypatch, point):
    token = enrol(services, host).strip()
    with monkeypatch.context() as patch:
        dying(patch, POINTS[point])
        with pytest.raises(Killed):
            joined_here(services, machine, "--token", token)
    again = joined_here(services, machine, "--token", token)
    assert again.exit_code == 0, again.output
    assert hosts_of(services)[host] == "enrolled"
    assert files_of(machine) == ["etc/agent.conf", "etc/ca.crt", "state/host/credential.json"]


def test_a_token_of_another_host_or_a_wrong_one_is_refused_with_the_command_that_makes_one(services, machine, host):
    done = moorage(*words(services, machine, "--token", f"{host}:wrong"))
    assert done.returncode == 1
    assert f"moorage host enrol {host}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


# ------------------------------------------------------------------------------------------------------------ trust


def fingerprint_of(services):
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert((services.state / "moorage.crt").read_text())).hexdigest()


def test_a_certificate_is_trusted_by_its_fingerprint_alone(services, machine, host):
    token = enrol(services, host).strip()
    done = joined_here(services, machine, "--fingerprint", fingerprint_of(services).upper(), "--token", token, ca=False)
    assert done.exit_code == 0, done.output
    assert (machine / "etc/ca.crt").read_text().strip() == (services.state / "moorage.crt").read_text().strip()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--fingerprint", "0" * 64], 1, "another fingerprint"),
        (["--fingerprint", "none"], 1, "64 hexadecimal digits"),
        ([], 3, "[endpoints] ca_file"),
        (["--ca-file", "/nowhere"], 1, "cannot be read: No such file"),
        (["--ca-file", __file__], 1, "no certificates in PEM format"),
    ],
)
def test_an_untrusted_server_gets_no_token(services, machine, host, options, code, said):
    token = enrol(services, host).strip()
    done = moorage(*words(services, machine, "--token", token, *options, ca=False))
    assert done.returncode == code, done.stdout + done.stderr
    assert said in " ".join((done.stdout + done.stderr).split())
    assert hosts_of(services)[host] == "invited"
    assert files_of(machine) == []


# ------------------------------------------------------------------------------------------------------------ systemd


@pytest.fixture
def systemctl(machine, monkeypatch):
    """A machine with systemd, whose `systemctl` only records its arguments."""
    (machine / "root/run/systemd/system").mkdir(parents=True)
    (machine / "bin").mkdir()
    program, calls = machine / "bin/systemctl", machine / "port.calls"
    active = machine / "bin/active"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {shlex.quote(str(calls))}\n'
        f'case "$1" in is-active) test -e {active};; restart) touch {active}; test ! -e {machine}/bin/broken;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{machine}/bin:/usr/bin:/bin")
    monkeypatch.setattr(unit, "_HIDDEN", ())

    def made():
        lines = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return lines

    return made


def test_systemds_unit_is_installed_adapted_and_started_once(services, machine, host, systemctl):
    token = enrol(services, host).strip()
    done = joined_here(services, machine, "--token", token)
    assert done.exit_code == 0, done.output
    assert systemctl()[-2:] == ["enable --quiet moorage-agent.service", "restart moorage-agent.service"]
    directory = machine / "root/etc/systemd/system"
    assert stat.S_IMODE((directory / "moorage-agent.service").stat().st_mode) == 0o644
    drop_in = (directory / "moorage-agent.service.d/join.conf").read_text()
    assert f"ExecStart=\nExecStart={unit.own_program()} up --config {machine}/etc/agent.conf\n" in drop_in
    assert f"ReadWritePaths={machine}/state\n" in drop_in
    again = joined_here(services, machine, "--token", token)
    assert "moorage-agent.service runs already" in again.output
    assert not any(call.startswith("restart") for call in systemctl())


def test_an_agent_whose_files_were_written_by_a_killed_join_is_restarted(
    services, machine, host, systemctl, monkeypatch
):
    token = enrol(services, host).strip()
    assert joined_here(services, machine, "--token", token).exit_code == 0
    with monkeypatch.context() as patch:
        dying(patch, (command, "enrol_or_keep", 1, False))
        with pytest.raises(Killed):
            joined_here(services, machine, "--token", token, "--set", "agent.workers=2", "--replace")
    systemctl()
    again = joined_here(services, machine, "--token", token, "--set", "agent.workers=2")
    assert "is restarted" in again.output
    assert "restart moorage-agent.service" in systemctl()


def test_a_unit_that_does_not_start_is_an_error_that_names_its_log(services, machine, host, systemctl):
    (machine / "bin/broken").touch()
    given = ["--token", enrol(services, host).strip()]
    with pytest.raises(command.StartError, match=r"restart moorage-agent.service failed.*journalctl --unit"):
        joined_here(services, machine, *given)


def test_a_unit_cannot_see_a_program_in_a_home_directory():
    (finding,) = unit.check_hidden([Path("/run/user/1000/venv/bin/moorage")])
    assert "ProtectHome" in finding.what
    assert "/opt/moorage" in finding.remedy


def test_the_installed_unit_of_a_package_is_used_as_it_is(tmp_path):
    path = tmp_path / "usr/lib/systemd/system/moorage-agent.service"
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nExecStart=/usr/bin/moorage up --config /etc/moorage/agent.conf\n")
    packaged = HostMachine(root=tmp_path)
    arguments = Path("/etc/moorage/agent.conf"), [plan.STATE, plan.STATE / "instances"]
    assert unit.unit_files(packaged, Path("/usr/bin/moorage"), *arguments) == []
    (drop_in,) = unit.unit_files(packaged, Path("/opt/moorage/bin/moorage"), *arguments)
    assert drop_in.path.name == "join.conf"


def test_two_joins_at_once_exclude_each_other(services, machine, host):
    directory = machine / "etc"
    directory.mkdir()
    with subprocess.Popen(["flock", directory, "sleep", "60"]) as holder:
        until(lambda: subprocess.run(["flock", "-n", directory, "true"], check=False).returncode)
        done = moorage(*words(services, machine, "--token", enrol(services, host).strip()))
        holder.kill()
    assert done.returncode == 1
    assert "another `moorage agent join` works in" in done.stderr
