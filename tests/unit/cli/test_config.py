"""The configuration file: options, defaults, and errors in invalid files."""

import dataclasses
import re
from pathlib import Path

import pytest

from moorage.config import Config, load_config, render_config, sections
from moorage.core.errors import StartError

SOURCES = Path(__file__).parents[3] / "src" / "moorage"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "moorage.conf"
    path.write_text(text)
    return path


def test_the_printed_configuration_reads_back_the_same(tmp_path):
    path = write(tmp_path, render_config(Config()))
    assert load_config(path) == dataclasses.replace(Config(), source=path.resolve())


def test_an_option_that_is_not_in_the_file_has_its_default(tmp_path):
    config = load_config(write(tmp_path, "[server]\nport = 9000\n"))
    assert config.server.port == 9000
    assert config.server.address == Config().server.address


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[nova]\nx = 1\n", ["[nova]", "compute"]),
        ("[server]\nprot = 1\n", ["[server]", "'prot'", "port"]),
        ("[server]\nport = many\n", ["[server] port", "'many'", "whole number"]),
        ("[identity]\nmode = ldap\n", ["[identity] mode", "'ldap'", "keystone"]),
        ("[compute]\nprovider_config_writable_by_others = perhaps\n", ["'perhaps'", "true"]),
        ("[plane]\nservices = placement,nova\n", ["services", "nova", "compute"]),
        ("[serve]\nport = 1\n", ["[serve]", "did you mean server?"]),
        ("[server]\nadress = ::1\n", ["did you mean address?"]),
        ("[plane]\nport = 1\n", ["[plane]", "'port'", "it belongs to [server]"]),
        ("[plane]\nservices = placment\n", ["did you mean placement?"]),
        ("port = 1\n", ["INI"]),
        ("[server]\nport = 1\nport = 2\n", ["[server] port is set twice"]),
        ("[server]\nport = 1\n[plane]\n[server]\nport = 2\n", ["[server] port is set twice"]),
        ("[database]\ncompute = sqlite:///a\n[database]\ncompute = sqlite:///a\n b\n", ["[database] compute is set"]),
    ],
)
def test_an_invalid_file_is_a_start_error_that_names_file_option_and_remedy(tmp_path, text, words):
    path = write(tmp_path, text)
    with pytest.raises(StartError) as refusal:
        load_config(path)
    for word in [str(path), *words]:
        assert word in refusal.value.message


def test_a_section_that_appears_twice_is_one_section(tmp_path):
    text = "\ufeff[server]\nport = 9000\n\n[agent]\nworkers = 2\n[server]\nthreads = 7\nport = 9000\n"
    config = load_config(write(tmp_path, text))
    assert (config.server.port, config.server.threads, config.agent.workers) == (9000, 7, 2)


def test_values_of_several_lines_are_read_as_before(tmp_path):
    config = load_config(write(tmp_path, "[plane]\nservices = placement,\n  compute\n[plane]\nregion = R2\n"))
    assert config.runs == {"placement", "compute"}
    assert config.plane.region == "R2"


def test_a_contradiction_does_not_show_the_values_which_may_be_secrets(tmp_path):
    path = write(tmp_path, "[identity]\npassword = one-secret\npassword = two-secret\n")
    with pytest.raises(StartError) as refusal:
        load_config(path)
    assert "[identity] password" in refusal.value.message
    assert "secret" not in refusal.value.message


def test_a_plane_whose_state_is_where_it_used_to_be_by_default_is_not_left_behind(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "lock").touch()
    with pytest.raises(StartError, match=r"set state_path = state, or rename"):
        load_config(write(tmp_path, "[server]\nport = 9000\n"))
    assert load_config(write(tmp_path, "[plane]\nstate_path = state\n")).state == tmp_path / "state"
    (tmp_path / "lock").touch()
    assert load_config(write(tmp_path, "[server]\nport = 9000\n")).state == tmp_path


def test_a_missing_configuration_file_is_a_start_error_that_names_it(tmp_path):
    with pytest.raises(StartError, match=r"nothing\.conf"):
        load_config(tmp_path / "nothing.conf")


def test_databases_default_to_files_in_the_state_directory(tmp_path):
    config = load_config(
        write(tmp_path, "[plane]\nstate_path = here\n[database]\ncompute = postgresql://me@db/compute\n")
    )
    assert config.database_url("placement") == f"sqlite:///{tmp_path.resolve()}/here/placement.db"
    assert config.database_url("compute") == "postgresql://me@db/compute"


def test_every_option_is_documented_and_used():
    places = [*SOURCES.glob("wiring/*.py"), *SOURCES.glob("cli/*.py"), SOURCES / "config.py"]
    code = "\n".join(path.read_text() for path in places)
    for section, kind in sections().items():
        for item in dataclasses.fields(kind):
            assert len(item.metadata["help"]) > 8, f"[{section}] {item.name} is not explained"
            # Sections whose options are read by name: getattr(config.database, service), asdict(options).
            if section not in ("database", "endpoints", "reservation"):
                assert re.search(rf"\.{item.name}\b", code), f"nobody reads [{section}] {item.name}"


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9000"),
        ("0.0.0.0", "http://127.0.0.1:9000"),
        ("::", "http://[::1]:9000"),
        ("fd00::7", "http://[fd00::7]:9000"),
    ],
)
def test_the_url_of_a_plane_that_listens_everywhere_is_on_loopback(tmp_path, address, url):
    assert load_config(write(tmp_path, f"[server]\nport = 9000\naddress = {address}\n")).url == url
