"""`moorage doctor`: one test for each fault of an installation that it finds, with the remedy."""

import datetime as dt
import http.server
import importlib
import ipaddress
import ssl
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moorage.cli.doctor import databases, endpoints, files, policy, software
from moorage.cli.doctor.finding import Severity, compare_clocks
from moorage.core.clock import SystemClock, VirtualClock
from moorage.db import migrations
from moorage.db.engine import open_engine
from tests.conftest import START
from tests.ports import free_port
from tests.system.planes import write_config

GIB = 1 << 30


def config_of(tmp_path, **sections):
    config = write_config(tmp_path / "state", **sections)
    config.source.chmod(0o600)
    config.state.chmod(0o700)
    return config


def worst(findings):
    """The worst severity, and its messages."""
    findings = list(findings)
    severity = max(finding.severity for finding in findings)
    return severity, [f"{one.what}: {one.remedy}" for one in findings if one.severity is severity]


# --- versions -----------------------------------------------------------------------------------------------------


def test_the_environment_of_the_tests_has_all_required_packages(tmp_path):
    assert worst(software.check_versions(config_of(tmp_path)))[0] is Severity.FINE


@pytest.mark.parametrize(
    ("requirement", "severity", "said"),
    [
        ("no-such-package>=1", Severity.BROKEN, "no-such-package is not installed: pip install 'no-such-package>=1'"),
        ("click>=999", Severity.WARNING, "is installed, but Moorage needs >=999: pip install 'click>=999'"),
        ("click<1,>=0.1", Severity.WARNING, "is installed, but Moorage needs <1,>=0.1"),
        ("nothing>=1; extra == 'rabbit'", Severity.BROKEN, "pip install 'moorage[rabbit]'"),
    ],
)
def test_a_missing_or_outdated_package_is_named(requirement, severity, said):
    found, words = worst(software._packages("1", [requirement], frozenset({"rabbit"})))
    assert found is severity
    assert said in words[0]


def test_a_linked_module_of_debian_has_its_metadata_where_debian_has_them(tmp_path, monkeypatch):
    """As in Moorage's Debian package, whose links lead nowhere until Debian's package is installed."""
    monkeypatch.setattr(software, "_DEBIANS_OWN", {"lent-package": ("lent_module", "python3-lent")})
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path / "debian")
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian/lent_module.py").symlink_to("../dist-packages/lent_module.py")
    requirement = "lent-package>=9; extra == 'libvirt'"
    severity, words = worst(software._packages("1", [requirement], frozenset({"libvirt"})))
    assert (severity, words) == (Severity.BROKEN, ["lent-package is not installed: apt-get install python3-lent"])

    metadata = tmp_path / "dist-packages/lent_package-9.1.egg-info"
    metadata.mkdir(parents=True)
    (metadata / "PKG-INFO").write_text("Metadata-Version: 1.2\nName: lent-package\nVersion: 9.1\n")
    (tmp_path / "dist-packages/lent_module.py").touch()
    importlib.invalidate_caches()
    assert worst(software._packages("1", [requirement], frozenset({"libvirt"})))[0] is Severity.FINE
    newer = "lent-package>=10; extra == 'libvirt'"
    assert worst(software._packages("1", [newer], frozenset({"libvirt"})))[0] is Severity.WARNING


def test_packages_of_unused_extras_are_not_required(tmp_path):
    assert worst(software._packages("1", ["nothing>=1; extra == 'rabbit'"], frozenset()))[0] is Severity.FINE
    config = config_of(
        tmp_path, plane={"hints": "amqp://bus"}, identity={"mode": "keystone"}, database={"placement": "mariadb://x/y"}
    )
    assert software.extras_of(config) == {"rabbit", "keystone", "mysql"}


# --- files --------------------------------------------------------------------------------------------------------


def test_a_state_directory_with_correct_permissions_is_fine(tmp_path):
    config = config_of(tmp_path)
    (config.state / "token.key").touch(0o600)
    assert worst(one for one in files.check_files(config) if one.check != "disk")[0] is Severity.FINE


def test_a_readable_secret_is_broken_and_a_readable_state_directory_is_a_warning(tmp_path):
    config = config_of(tmp_path)
    (config.state / "credentials.json").touch()
    (config.state / "credentials.json").chmod(0o640)
    severity, words = worst(files.check_files(config))
    assert severity is Severity.BROKEN
    (said,) = words
    assert said.startswith("other users can read or write credentials.json (mode 0040 beyond the owner): ")
    assert said.endswith(
        f"chmod 600 {config.state / 'credentials.json'}; replace the secret, which others may have read"
    )
    (config.state / "credentials.json").chmod(0o600)
    config.state.chmod(0o755)
    severity, words = worst(one for one in files.check_files(config) if one.check == "files")
    assert (severity, words) == (
        Severity.WARNING, [f"other users can list the state directory: chmod 700 {config.state}"],
    )  # fmt: skip


def test_an_audit_trail_that_other_users_can_read_is_broken(tmp_path):
    config = config_of(tmp_path)
    (config.state / "trail.jsonl").touch(mode=0o644)
    severity, (said,) = worst(files.check_files(config))
    assert severity is Severity.BROKEN
    assert said.startswith("other users can read or write trail.jsonl")
    assert said.endswith(f"chmod 600 {config.state / 'trail.jsonl'}")


def test_a_database_file_that_other_users_can_read_is_broken(tmp_path):
    config = config_of(tmp_path)
    (config.state / "placement.db").touch()
    (config.state / "placement.db").chmod(0o644)
    assert "placement.db" in worst(files.check_files(config))[1][0]


def test_a_readable_configuration_file_is_broken_only_if_it_contains_passwords(tmp_path):
    config = config_of(tmp_path)
    config.source.chmod(0o644)
    assert worst(one for one in files.check_files(config) if one.check == "files")[0] is Severity.FINE
    config = config_of(tmp_path, database={"placement": "postgresql://moorage:secret@db/placement"})
    config.source.chmod(0o644)
    assert "which contains passwords" in worst(files.check_files(config))[1][0]
    config.source.chmod(0o660)
    assert "other users can write the configuration file" in worst(files.check_files(config))[1][0]


def test_faults_in_provider_configuration_files_are_reported(tmp_path):
    config = config_of(tmp_path)
    path = Path(config.compute.provider_config_location) / "10-x.yaml"
    path.write_text("meta: {schema_version: '1.0'}\nproviders: 3\n")
    path.chmod(0o600)
    severity, words = worst(files.check_files(config))
    assert severity is Severity.BROKEN
    assert "10-x.yaml" in words[0]


@pytest.mark.parametrize(
    ("free", "total", "inodes", "severity"),
    [
        (100 * GIB, 200 * GIB, 9, Severity.FINE),
        (30 * GIB, 1000 * GIB, 9, Severity.FINE),
        (2 * GIB, 100 * GIB, 9, Severity.WARNING),
        (GIB // 2, 2 * GIB, 9, Severity.WARNING),
        (GIB // 100, 2 * GIB, 9, Severity.BROKEN),
        (100 * GIB, 200 * GIB, 0, Severity.BROKEN),
    ],
)
def test_a_nearly_full_disk_is_a_warning_and_a_full_one_is_broken(free, total, inodes, severity):
    assert files.judge_disk_space(Path("/"), free, total, inodes).severity is severity


def test_images_on_the_disk_of_a_database_are_a_warning_if_another_disk_has_more_space(tmp_path):
    images, database, elsewhere = tmp_path / "images", tmp_path / "compute.db", Path("/proc")
    images.mkdir()
    database.touch()
    assert files.shared_disk(images, [database], []).severity is Severity.FINE
    assert files.shared_disk(images, [], [elsewhere]).severity is Severity.FINE
    assert files.shared_disk(images, [database], [tmp_path]).severity is Severity.FINE, (
        "the other directory is on the same disk"
    )
    assert files.shared_disk(images, [database], [elsewhere]).severity is Severity.FINE, "the other disk has no space"
    other = next((disk for disk in (Path("/dev/shm"), Path.cwd()) if disk.stat().st_dev != images.stat().st_dev), None)
    if other is None:
        pytest.skip("this machine has one disk")
    where, has = (images, other) if files._free(other) > files._free(images) else (other, tmp_path)
    kept = database if where is images else next(path for path in other.iterdir() if path.is_file())
    found = files.shared_disk(where, [kept], [has])
    assert (found.severity, "set [image] directory to it" in found.remedy) == (Severity.WARNING, True)


def test_mounted_disks_are_those_with_a_directory_that_this_user_can_write(tmp_path):
    table = tmp_path / "mounts"
    place = tmp_path / "a disk"
    place.mkdir()
    said = str(place).replace(" ", "\\040")
    table.write_text(
        f"tmpfs {tmp_path} tmpfs rw 0 0\n/dev/sda1 {said} ext4 rw 0 0\n/dev/sdb1 {tmp_path}/gone ext4 rw 0 0\n"
    )
    assert files.mounted(table) == [place]
    assert files.mounted(tmp_path / "nothing") == []


def test_a_missing_state_directory_is_reported_with_the_command_that_creates_it(tmp_path):
    config = write_config(tmp_path / "conf", plane={"state_path": "none"})
    assert worst(files.check_files(config))[1] == ["the state directory does not exist: run `moorage up` to create it"]


# --- policy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "severity", "said"),
    [
        ({}, Severity.FINE, "identity embedded"),
        ({"server": {"address": "0.0.0.0"}}, Severity.WARNING, "passwords are sent to 0.0.0.0 unencrypted"),
        ({"server": {"address": "0.0.0.0"}, "identity": {"mode": "none"}}, Severity.BROKEN, "mode none does not listen"),
        (
            {"server": {"address": "::"}, "identity": {"mode": "none", "allow_none_beyond_loopback": True}},
            Severity.WARNING, "everyone who can reach :: is an administrator",
        ),
        ({"identity": {"mode": "keystone"}}, Severity.BROKEN, "keystone_url is empty"),
        ({"placement": {"policy": "open"}}, Severity.WARNING, "every user with a project can change Placement"),
        ({"server": {"cors_origins": "*"}}, Severity.WARNING, "web pages from * can call"),
        (
            {"server": {"metrics": "everywhere", "address": "0.0.0.0", "public_url": "https://x"}},
            Severity.WARNING, "can read the metrics",
        ),
        (
            {"plane": {"clock": "adjustable"}, "server": {"address": "10.0.0.1", "public_url": "https://x"}},
            Severity.WARNING, "an administrator can move the clock",
        ),
    ],
)  # fmt: skip
def test_insecure_settings_are_reported(tmp_path, sections, severity, said):
    found, words = worst(policy.check_policy(config_of(tmp_path, **sections)))
    assert found is severity
    assert any(said in text for text in words), words


# --- databases ----------------------------------------------------------------------------------------------------


def of_database(tmp_path, url=""):
    config = config_of(tmp_path, plane={"services": "placement"}, database={"placement": url})
    return config, lambda: worst(databases.check_databases(config, SystemClock()))


@pytest.mark.slow
def test_an_empty_older_current_or_newer_database_schema_is_reported(tmp_path, database_url, monkeypatch):
    # Servers that the tests start do not write to the disk at each commit, which is worse than any schema.
    monkeypatch.setattr(databases, "_setting_checks", lambda *_: iter(()))
    config, look = of_database(tmp_path, database_url)
    engine = open_engine(database_url)
    engine.connect().close()
    assert "the database is empty; the first start creates its tables: " in list(look()[1])
    migrations.upgrade(engine, "placement")
    newest = migrations.head_revision("placement")
    with monkeypatch.context() as later:
        later.setattr(migrations, "revisions", lambda _: [newest, "0777"])
        severity, words = look()
        assert severity is Severity.WARNING
        assert words[-1].startswith(f"schema {newest} is behind this program's 0777: run `moorage db upgrade --plan`")
        later.setattr(migrations, "revisions", lambda _: ["0777"])
        severity, words = look()
        assert severity is Severity.BROKEN
        assert words[0].startswith(f"schema {newest} is older than this program's first migration, 0777: first start")
    found = list(databases.check_databases(config, SystemClock()))
    assert {one.severity for one in found if "schema" in one.what or "clock" in one.what} == {Severity.FINE}
    assert any("clock agrees" in one.what for one in found) is not database_url.startswith("sqlite")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE placement_version SET version_num = '0999'")
    assert f"schema 0999 is newer than this program's {newest}, but compatible: " in look()[1]
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE placement_oldest_program SET revision = '0999'")
    severity, words = look()
    assert severity is Severity.BROKEN
    assert words[0].startswith("schema 0999 is newer than this program")
    engine.dispose()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_database_that_does_not_answer_is_broken(tmp_path, kind):
    _, look = of_database(tmp_path, f"{kind}://moorage:secret@127.0.0.1:{free_port()}/placement")
    severity, words = look()
    assert severity is Severity.BROKEN
    assert "the database does not answer" in words[0]
    assert "secret" not in words[0]


def test_a_missing_database_file_is_reported_and_not_created(tmp_path):
    config, look = of_database(tmp_path)
    assert look() == (Severity.FINE, ["not created yet; the first start creates it: "])
    assert not (config.state / "placement.db").exists()


def test_unsafe_server_settings_isolation_levels_and_old_versions_are_reported():
    wrong = databases._setting_checks("db", "", databases._POSTGRESQL, {"fsync": "off", "synchronous_commit": "off"})
    assert [one.what.partition(":")[0] for one in wrong] == ["fsync is off", "synchronous_commit is off"]
    right = {"fsync": "on", "synchronous_commit": "remote_apply", "full_page_writes": "on", "server_encoding": "UTF8"}
    assert list(databases._setting_checks("db", "", databases._POSTGRESQL, right)) == []
    mariadb = databases._setting_checks("db", "", databases._MARIADB, {"innodb_flush_log_at_trx_commit": "2"})
    assert [one.remedy for one in mariadb] == ["set innodb_flush_log_at_trx_commit to 1 on the server"]
    assert list(databases._isolation_check("db", "", "READ-COMMITTED")) == []
    assert worst(databases._isolation_check("db", "", "REPEATABLE-READ"))[0] is Severity.BROKEN
    old = databases._version_check("db", "", "mariadb", "MariaDB", "10.3.39-MariaDB")
    assert worst(old) == (Severity.BROKEN, ["MariaDB 10.3.39-MariaDB is too old: upgrade the server to 10.6 or newer"])


# --- bus ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["postgresql", "amqp"])
def test_a_message_bus_that_does_not_answer_is_only_a_warning(tmp_path, scheme):
    url = f"{scheme}://moorage:secret@127.0.0.1:{free_port()}/bus"
    found = list(endpoints.check_bus(config_of(tmp_path, plane={"hints": url})))
    assert [one.severity for one in found] == [Severity.WARNING]
    assert "the message bus does not answer" in found[0].what
    assert "secret" not in f"{found[0]}"


# --- clocks and endpoints -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset_s", "severity", "said"),
    [
        (0, Severity.FINE, "agrees"),
        (-2.5, Severity.FINE, "agrees"),  # a time in whole seconds may be one second behind
        (5, Severity.WARNING, "5 s ahead of"),
        (-6, Severity.WARNING, "5 s behind"),
        (300, Severity.BROKEN, "300 s ahead of"),
    ],
)
def test_a_difference_between_clocks_is_reported_by_its_size(offset_s, severity, said):
    there = START + dt.timedelta(seconds=offset_s)
    found = compare_clocks("clock", "there", there, START, START, precision_s=1.0)
    assert found.severity is severity
    assert said in found.what


class AnsweringHandler(http.server.BaseHTTPRequestHandler):
    status, ahead_s = 200, 0

    def do_GET(self):
        self.send_response_only(self.status)
        moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self.ahead_s)
        self.send_header("date", moment.strftime("%a, %d %b %Y %H:%M:%S GMT"))
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


@contextmanager
def answering(context=None, **how):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (AnsweringHandler,), how))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def check_endpoints_of(tmp_path, **urls):
    config = config_of(tmp_path, plane={"services": "agent"}, identity={"mode": "none"}, endpoints=urls)
    return list(endpoints.check_endpoints(config, SystemClock()))


def test_endpoints_are_requested_and_their_clocks_are_compared(tmp_path):
    with answering(ahead_s=100) as fast, answering(status=503) as failing:
        found = check_endpoints_of(
            tmp_path,
            placement=f"http://{fast}/placement",
            compute=f"http://{failing}",
            image=f"http://127.0.0.1:{free_port()}",
        )
    by_check = {(one.check, one.severity): one.what for one in found}
    assert by_check[("endpoint:placement", Severity.FINE)] == "it answers 200"
    assert "ahead of this machine's" in by_check[("endpoint:placement", Severity.BROKEN)]
    assert by_check[("endpoint:compute", Severity.BROKEN)].startswith("it answers 503")
    assert "does not answer" in by_check[("endpoint:image", Severity.BROKEN)]


def test_the_clock_of_keystone_is_compared(tmp_path):
    with answering(ahead_s=-100) as keystone:
        identity = {"mode": "keystone", "keystone_url": f"http://{keystone}/v3"}
        config = config_of(tmp_path, plane={"services": "agent"}, identity=identity)
        found = list(endpoints.check_endpoints(config, SystemClock()))
    assert [(one.check, one.severity) for one in found] == [
        ("endpoint:identity", Severity.FINE), ("endpoint:identity", Severity.BROKEN),
    ]  # fmt: skip


def test_services_of_a_plane_that_does_not_run_are_one_warning_each(tmp_path):
    found = list(endpoints.check_endpoints(config_of(tmp_path, plane={"services": "placement"}), SystemClock()))
    assert {(one.severity, one.what) for one in found} == {(Severity.WARNING, "no plane runs with this configuration")}


def certificate(directory: Path, days: int) -> Path:
    """Key and certificate in one file, for 127.0.0.1, valid for this many days."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=400))
        .not_valid_after(now + dt.timedelta(days=days, hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    path = directory / f"{days}.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.mark.parametrize(
    ("days", "severity", "said"),
    [
        (90, Severity.FINE, "the certificate is valid until"),
        (5, Severity.WARNING, "the certificate is valid until"),
        (-1, Severity.BROKEN, "not trusted: certificate has expired"),
    ],
)
def test_certificates_that_expire_soon_or_have_expired_are_reported(tmp_path, days, severity, said):
    pem = certificate(tmp_path, days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with answering(context) as address:
        found = endpoints._certificate(f"https://{address}/placement", SystemClock().now(), pem)
    assert found.severity is severity
    assert said in found.what


def test_checks_use_the_clock_that_they_are_given(tmp_path):
    """With a wrong clock, the clock of a correct server must look wrong."""
    with answering() as address:
        config = config_of(
            tmp_path, plane={"services": "agent"}, identity={"mode": "none"}, endpoints={"image": f"http://{address}"}
        )
        found = list(endpoints.check_endpoints(config, VirtualClock(START)))
    assert Severity.BROKEN in {one.severity for one in found}
