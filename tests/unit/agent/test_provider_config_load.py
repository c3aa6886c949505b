"""Spec: docs/evidence/specs/provider-config.md, "Loading". The tests use real files in a real directory."""

import json
import logging
import os
from pathlib import Path

import jsonschema
import pytest

from moorage.agent.provider_config import load as loading
from moorage.agent.provider_config.installation import replaced_files
from moorage.agent.provider_config.load import (
    ProviderFiles,
    check_directory,
    config_schema,
    load_provider_files,
    sample_file,
)
from moorage.config import Config
from moorage.core.errors import StartError
from moorage.options.compute import ComputeOptions
from moorage.options.host import AgentOptions

ENTRY = "meta: {{schema_version: '1.0'}}\nproviders:\n  - identification: {{name: {name}}}\n"


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "provider_config"
    path.mkdir(mode=0o755)
    return path


def put(directory: Path, name: str, text: str | bytes, mode: int = 0o644) -> Path:
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def refusal(directory: Path) -> str:
    with pytest.raises(StartError) as caught:
        load_provider_files(ProviderFiles(directory))
    return caught.value.message


def test_the_directory_is_an_option_with_novas_default():
    """R14 (provider-config): `[compute] provider_config_location`, `/etc/nova/provider_config/`."""
    assert Config(agent=AgentOptions(virt_driver="libvirt")).provider_config == Path("/etc/nova/provider_config/")
    given = ComputeOptions(provider_config_location="/srv/files")
    assert Config(compute=given).provider_config == Path("/srv/files")


def test_the_files_of_a_simulated_host_are_not_those_of_this_machine():
    """R14 (provider-config)"""
    config = Config(source=Path("/srv/plane/moorage.conf"))
    assert config.provider_config == Path("/srv/plane/provider_config")


def test_files_are_read_in_lexicographic_order(directory):
    """R15 (provider-config)"""
    for name in ("b.yaml", "10.yaml", "9.yaml", "a.yaml", "B.yaml"):
        put(directory, name, ENTRY.format(name=f"of-{name}"))
    assert [config.name for config in load_provider_files(ProviderFiles(directory)).configs] == [
        "of-10.yaml", "of-9.yaml", "of-B.yaml", "of-a.yaml", "of-b.yaml",
    ]  # fmt: skip


def test_files_without_the_ending_yaml_are_not_read_and_similar_endings_give_a_warning(directory):
    for name in ("a.yml", "b.YAML", "c.yaml~", ".d.yaml", "README"):
        put(directory, name, "not: [yaml")
    report = check_directory(ProviderFiles(directory))
    assert report.configs == ()
    assert report.faults == ()
    assert [warning.split(":")[0].rsplit("/", 1)[1] for warning in report.warnings] == ["a.yml", "b.YAML"]


def test_a_missing_directory_configures_nothing_and_gives_a_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        assert load_provider_files(ProviderFiles(tmp_path / "nowhere")).configs == ()
    assert "this directory does not exist" in caplog.text


def test_a_fault_is_a_start_error_that_names_the_file_the_position_and_the_remedy(directory):
    """R16 (provider-config)"""
    path = put(directory, "llc.yaml", ENTRY.format(name="n") + "    inventories: {additional: {VCPU: {total: 1}}}\n")
    message = refusal(directory)
    assert (
        f"{path}:4:32: providers[0].inventories.additional.VCPU: 'VCPU' is not allowed; only custom classes" in message
    )
    assert message.startswith(f"the provider configuration in {directory} has 1 fault:\n")


def test_all_faults_of_all_files_are_in_one_message(directory):
    """R16 (provider-config)"""
    put(directory, "a.yaml", "meta: [\n")
    put(directory, "b.yaml", ENTRY.format(name="''"))
    put(directory, "c.yaml", ENTRY.format(name="n"), mode=0o666)
    message = refusal(directory)
    assert f"the provider configuration in {directory} has 3 faults:\n  {directory}/" in message
    assert all(f"{directory}/{name}.yaml" in message for name in "abc")


def test_a_provider_in_two_files_is_a_start_error_that_names_both(directory):
    """R7 (provider-config): over all files."""
    put(directory, "a.yaml", ENTRY.format(name="n"))
    put(directory, "b.yaml", ENTRY.format(name="n"))
    assert f"{directory}/b.yaml:3:5: n is configured twice, first at {directory}/a.yaml:3:5" in refusal(directory)


@pytest.mark.parametrize(
    ("mode", "who"), [(0o664, "its group"), (0o646, "everybody"), (0o666, "everybody"), (0o622, "everybody")]
)
def test_a_file_that_others_may_write_is_refused(directory, mode, who):
    """R18 (provider-config)"""
    path = put(directory, "a.yaml", ENTRY.format(name="n"), mode=mode)
    message = refusal(directory)
    assert f"{path}: may be written by {who} (mode {mode:04o})" in message
    assert f"chmod go-w {path}" in message


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777])
def test_a_directory_that_others_may_write_is_refused(directory, mode):
    """R18 (provider-config): adding a file has the same effect as changing one."""
    put(directory, "a.yaml", ENTRY.format(name="n"))
    directory.chmod(mode)
    assert f"{directory}: may be written by" in refusal(directory)


@pytest.mark.parametrize("name", ["a-directory-that-sorts-before", "z-directory-that-sorts-after"])
def test_the_permissions_of_the_target_of_a_symbolic_link_are_checked(directory, tmp_path, name):
    """R16, R18 (provider-config): Kubernetes mounts files as symbolic links."""
    elsewhere = tmp_path / name
    elsewhere.mkdir()
    (directory / "a.yaml").symlink_to(put(elsewhere, "real.yaml", ENTRY.format(name="n")))
    assert len(load_provider_files(ProviderFiles(directory)).configs) == 1
    elsewhere.chmod(0o777)
    assert f"{elsewhere}: may be written by everybody" in refusal(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(directory):
    """R18 (provider-config): writable by anyone other than the process owner."""
    os.chown(put(directory, "a.yaml", ENTRY.format(name="n")), 12345, -1)
    assert "belongs to user 12345" in refusal(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_agent_reads_its_own_files_and_those_of_root(directory, monkeypatch):
    """R18 (provider-config): root may change them anyway."""
    os.chown(put(directory, "own.yaml", ENTRY.format(name="own")), 12345, -1)
    put(directory, "root.yaml", ENTRY.format(name="root"))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert [config.name for config in load_provider_files(ProviderFiles(directory)).configs] == ["own", "root"]
    monkeypatch.setattr(os, "geteuid", lambda: 12346)
    assert "belongs to user 12345" in refusal(directory)


def test_the_check_of_permissions_can_be_switched_off(directory):
    """R18 (provider-config): `[compute] provider_config_writable_by_others`."""
    put(directory, "a.yaml", ENTRY.format(name="n"), mode=0o666)
    directory.chmod(0o777)
    assert len(load_provider_files(ProviderFiles(directory, allow_writable_by_others=True)).configs) == 1


def test_a_pipe_directory_or_broken_link_is_refused_without_waiting_and_with_its_own_remedy(directory):
    """Issue 18.6: only a file that cannot be read for want of permission is a matter of permissions."""
    os.mkfifo(directory / "pipe.yaml", 0o600)
    (directory / "sub.yaml").mkdir(0o700)
    (directory / "gone.yaml").symlink_to(directory / "nothing")
    (directory / "loop.yaml").symlink_to(directory / "loop.yaml")
    (directory / "folder.yaml").symlink_to(directory / "sub.yaml")
    message = refusal(directory)
    for line in (
        "pipe.yaml: is a named pipe, not a file; move it away",
        "sub.yaml: is a directory, not a file; move it away",
        "folder.yaml: is a directory, not a file; move it away",
        f"gone.yaml: is a link to {directory}/nothing, which leads to no file; remove the link, or correct its target",
        f"loop.yaml: is a link to {directory}/loop.yaml, which leads to no file; remove the link, or correct its target",
    ):
        assert line in message
    assert "let user" not in message


def test_a_location_that_is_not_a_directory_is_refused_with_the_option(tmp_path):
    put(tmp_path, "file", "")
    assert "file: cannot be read: Not a directory; name a directory in provider_config_location" in refusal(
        tmp_path / "file"
    )


def test_looking_at_a_directory_called_yaml_leaves_no_descriptor_open(directory):
    """Issue 18.6: each look left one open."""
    (directory / "sub.yaml").mkdir()
    os.mkfifo(directory / "pipe.yaml", 0o600)
    put(directory, "good.yaml", ENTRY.format(name="a"))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(30):
        check_directory(ProviderFiles(directory))
        with pytest.raises(StartError, match="is not a file; move it away"), replaced_files(directory, {}):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert (directory / "good.yaml").exists()


def test_a_file_above_the_maximum_size_is_refused_without_reading_it(directory):
    path = directory / "a.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    path.chmod(0o644)
    assert f"is larger than {loading.MAX_FILE_BYTES} bytes" in refusal(directory)


def test_too_many_files_are_refused(directory):
    """R16 (provider-config)"""
    for number in range(loading.MAX_FILES):
        put(directory, f"{number}.yaml", ENTRY.format(name=f"n{number}"))
    assert len(load_provider_files(ProviderFiles(directory)).configs) == loading.MAX_FILES
    put(directory, "one-more.yaml", ENTRY.format(name="n"))
    assert f"use at most {loading.MAX_FILES}" in refusal(directory)


def test_files_that_together_exceed_the_maximum_size_are_refused(directory):
    for number in range(9):
        put(directory, f"{number}.yaml", "#" * loading.MAX_FILE_BYTES)
    assert f"use at most {loading.MAX_TOTAL_BYTES}" in refusal(directory)


def test_unknown_fields_give_one_warning_with_their_paths(directory, caplog):
    """R3, R12 (provider-config)"""
    put(directory, "a.yaml", ENTRY.format(name="n") + "    colour: red\n    traits: {removed: []}\n")
    with caplog.at_level(logging.WARNING):
        assert len(load_provider_files(ProviderFiles(directory)).configs) == 1
    (record,) = caplog.records
    assert "providers[0].colour, providers[0].traits.removed" in record.getMessage()


def test_a_strict_check_makes_unknown_fields_faults(directory):
    put(directory, "a.yaml", ENTRY.format(name="n") + "    colour: red\n")
    assert [fault.problem for fault in check_directory(ProviderFiles(directory), strict=True).faults] == [
        "providers[0].colour is not known"
    ]


def test_a_message_stays_readable_with_thousands_of_faults(directory):
    put(directory, "a.yaml", "meta: {schema_version: 1.0}\nproviders:\n" + "  - 1\n" * 5000)
    message = refusal(directory)
    assert "has 5000 faults" in message
    assert len(message.splitlines()) == loading.MAX_SHOWN + 2


def test_the_json_schema_is_valid_and_part_of_the_package():
    """R28 (provider-config): the formal schema file."""
    jsonschema.Draft202012Validator.check_schema(config_schema())
    assert json.dumps(config_schema()).count('"remedies"') > 10


def test_the_sample_file_loads_and_shows_every_field(directory):
    """R28 (provider-config): the self-documenting sample file."""
    text = sample_file()
    put(directory, "sample.yaml", text)
    report = check_directory(ProviderFiles(directory), strict=True)
    assert report.faults == ()
    assert len(report.configs) == 3
    shown = config_schema()["$defs"]["record"]["properties"]
    assert all(f"{field}:" in text for field in shown)


def test_the_first_line_of_the_sample_file_names_the_schema_for_editors():
    """R28 (provider-config): `yaml-language-server` reads it from there."""
    first, second, _ = sample_file().split("\n", 2)
    name = first.removeprefix("# yaml-language-server: $schema=")
    assert name != first
    assert f"schema > {name}`" in second
