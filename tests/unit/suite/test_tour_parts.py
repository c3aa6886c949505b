"""The parts of the tour that need no plane: one client process for many commands, and lines that fit the terminal."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

#: Reads commands as the client does: each word is taken apart twice.
CLIENT = """#!{python}
import shlex, subprocess, sys
print("Could not load 'reservation_host_unset': a mistake of its packaging", file=sys.stderr, flush=True)
for line in sys.stdin:
    if line.startswith("!"):
        subprocess.run(line[1:], shell=True)
        continue
    words = shlex.split(" ".join(shlex.split(line)))
    if words[0] == "leave":
        sys.exit(1)
    print(words, file=sys.stderr if words[0] == "fail" else sys.stdout, flush=True)
"""


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    from openstack_process import OpenStackProcess

    program = tmp_path / "openstack"
    program.write_text(CLIENT.format(python=sys.executable))
    program.chmod(0o700)
    process = OpenStackProcess(program, {"PATH": "/usr/bin:/bin"}, tmp_path)
    yield process
    process.close()


def test_each_command_of_one_client_process_gets_its_own_output(client):
    assert client.run(["list", "--end", "2026-11-24 20:00", "a>b"]) == (
        "['list', '--end', '2026-11-24 20:00', 'a>b']",
        "",
    )
    assert client.run(["fail"]) == ("", "['fail']")
    assert client.run(["list"]) == ("['list']", "")


def test_a_client_that_ends_is_noticed_at_once(client):
    assert client.run(["leave"]) == ("", "")
    assert client.has_ended


def test_a_word_with_quotes_is_refused(client):
    with pytest.raises(ValueError, match="has quotes"):
        client.run(["it's"])


def test_commands_and_sentences_are_wrapped_and_tables_are_not(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    from tour import wrapped

    assert wrapped("$ openstack server create one --flavor two", 30) == (
        "$ openstack server create \\\n      one --flavor two"
    )
    assert wrapped("   ok: a claim that is longer than the terminal", 30) == (
        "   ok: a claim that is longer\n     than the terminal"
    )
    row = "| a row of a table that is longer than the terminal |"
    assert wrapped(row, 30) == row
