"""`moorage status`: its exit status and its output."""

import dataclasses
import io
import subprocess
import sys

import pytest
from rich.console import Console

from moorage.cli import status_reading as reading
from moorage.cli.commands.status import Status, exit_code, print_status, status_document
from moorage.cli.exit_codes import Exit
from moorage.cli.main import main
from moorage.cli.output import console, table
from moorage.config import Config

WELL = Status(
    Config(),
    7,
    "2026-03-01T09:30:00+00:00",
    [reading.ServiceState("placement", "http://x/placement", "ok")],
    [reading.DatabaseState("placement", "sqlite:///x", "current", "0006", "0006")],
    [reading.ListedHost("compute-1", is_up=True)],
    [reading.JobsState("compute", 0, 0, 0.0)],
    reading.LeaseState(0, 0.0, 0),
    [reading.BackgroundTaskState("reservation", 3.0, 0.0, 0)],
)
LATE = reading.BackgroundTaskState("placement-retention", 900.0, 600.0, 2)


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, Exit.DONE),
        ({"hosts": "not asked", "tasks": "not asked"}, Exit.DONE),
        ({"hosts": [reading.ListedHost("compute-2", is_up=False)]}, Exit.REFUSED),
        ({"tasks": [LATE]}, Exit.REFUSED),
        ({"leases": reading.LeaseState(1, 3600.0, 0)}, Exit.REFUSED),
        ({"databases": [reading.DatabaseState("placement", "x", "behind", "0005", "0006")]}, Exit.REFUSED),
        ({"databases": [reading.DatabaseState("placement", "x", "away", "", "0006", "gone")]}, Exit.BROKEN),
        ({"databases": [reading.DatabaseState("placement", "x", "newer", "0009", "0006")]}, Exit.BROKEN),
        ({"databases": [reading.DatabaseState("placement", "x", "older", "0001", "0006")]}, Exit.BROKEN),
        ({"services": [reading.ServiceState("image", "http://x", "away", "gone")], "tasks": [LATE]}, Exit.BROKEN),
    ],
)
def test_the_exit_status_is_that_of_the_worst_finding(changed, wanted):
    assert exit_code(dataclasses.replace(WELL, **changed)) is wanted


def test_hosts_that_are_down_take_one_line_and_a_late_task_is_named():
    hosts = [reading.ListedHost(f"compute-{number}", is_up=number > 20) for number in range(1, 10_001)]
    out = io.StringIO()
    print_status(Console(file=out, width=100), dataclasses.replace(WELL, hosts=hosts, tasks=[*WELL.tasks, LATE]))
    lines = out.getvalue().splitlines()
    assert "hosts    9,980 up, 20 down: compute-1, compute-2, compute-3, compute-4" in out.getvalue()
    assert "and 12 more" in out.getvalue()
    assert "         placement-retention: 600 s late, last run 900 s ago, 2 failed runs" in lines
    assert "tasks    2 running, 1 late" in lines
    assert len(lines) < 24, "the output must fit on one screen"


def test_unknown_values_are_null_in_the_json_document():
    known = status_document(dataclasses.replace(WELL, hosts="gone", leases=None))
    assert known["hosts"] is None
    assert known["leases"] is None
    assert known["duties"] == [{"name": "reservation", "ago_s": 3.0, "late_s": 0.0, "failures": 0}]


def test_the_tasks_are_read_from_the_metrics_of_a_process():
    text = (
        'moorage_duty_last_success_timestamp_seconds{duty="a"} 90.0\n'
        'moorage_duty_due_timestamp_seconds{duty="a"} 95.0\n'
        'moorage_duty_due_timestamp_seconds{duty="b"} +Inf\n'
        "# TYPE moorage_duty_failures counter\n"
        'moorage_duty_failures_total{duty="b"} 3.0\n'
    )
    assert list(reading._tasks(text, 100.0)) == [
        reading.BackgroundTaskState("a", 10.0, 5.0, 0),
        reading.BackgroundTaskState("b", None, 0.0, 3),
    ]


def test_control_characters_in_names_are_escaped_in_tables(capsys):
    """Users choose the names of servers and leases, and hosts choose their own names."""
    name = "\x1b[2J\x1b]0;title\x07web\u202egnp\x9b31m"
    rows = table("server", "host")
    rows.add_row(name, "compute-1\ncompute-2")
    console().print(rows)
    hosts, late = [reading.ListedHost(name, is_up=False)], dataclasses.replace(LATE, name=name)
    print_status(console(), dataclasses.replace(WELL, hosts=hosts, tasks=[late]))
    out = capsys.readouterr().out
    assert all(one.isprintable() for line in out.split("\n") for one in line)
    written = "\\u001b[2J\\u001b]0;title\\u0007web\\u202egnp\\u009b31m"
    assert out.count(written) == 3
    assert out.splitlines()[2].strip().endswith("compute-2"), "line breaks within a cell must be kept"


def test_control_characters_in_error_messages_are_escaped(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["moorage", "status", "--config", "/nowhere/\x1b[2J\u202e.conf"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert said.startswith("moorage: ")
    assert "/nowhere/\\u001b[2J\\u202e.conf" in said
    assert said.strip().isprintable()


def test_a_warning_of_a_command_is_one_line_with_its_fields():
    """In a process of its own: pytest sets up a log."""
    program = (
        "import logging; from moorage.cli import main as program\n"
        "log = logging.getLogger('moorage.db')\n"
        "program.cli = lambda: (log.warning('it waits', extra={'host': 'n1:3306', 'reason': 'no\\nanswer'}), log.warning('late'))\n"
        "program.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "moorage: it waits (host: n1:3306, reason: no answer)\nmoorage: late\n"
