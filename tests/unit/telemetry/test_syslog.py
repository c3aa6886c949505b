"""Entries of the audit trail that are sent to syslog, with real sockets."""

import os
import re
import socket

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.errors import StartError
from moorage.telemetry.trail import SyslogSink, Trail
from tests.conftest import START

CLOCK = VirtualClock(START)


@pytest.fixture
def unix(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "log"))
        receiver.settimeout(10)
        yield receiver


def test_a_unix_socket_gets_messages_in_the_older_format(unix):
    sink = SyslogSink(unix.getsockname(), CLOCK)
    assert Trail([sink], CLOCK, observer="here").write_entry({"action": "a"})
    message = unix.recv(8192).decode()
    head = re.match(r"<85>\w{3} [ \d]\d \d\d:\d\d:\d\d moorage-trail\[(\d+)\]: ", message)
    assert head is not None, message
    assert int(head[1]) == os.getpid()
    assert '"action":"a"' in message[head.end() :]
    assert not message.endswith("\n")
    sink.close()


def test_udp_messages_have_the_format_of_rfc_5424():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
        sink = SyslogSink(f"udp://127.0.0.1:{receiver.getsockname()[1]}", CLOCK)
        sink.write_line(b'{"a":1}\n')
        message = receiver.recv(8192).decode()
        sink.close()
    assert re.fullmatch(r'<85>1 2026-03-01T09:30:00\.000Z \S+ moorage-trail \d+ - - \{"a":1\}', message)


def test_entries_are_dropped_instead_of_waiting_for_a_slow_syslog_daemon(unix):
    lost = []
    trail = Trail([SyslogSink(unix.getsockname(), CLOCK)], CLOCK, observer="here", lost=lost.append)
    taken = [trail.write_entry({"action": "x" * 1000}) for _ in range(5000)]
    assert taken[0]
    assert lost == ["syslog"] * taken.count(False)
    assert lost, "the socket's buffer is smaller than 5 MB"


def test_entries_are_lost_while_the_syslog_daemon_is_down_and_sent_when_it_is_back(tmp_path, monkeypatch):
    monkeypatch.setattr("moorage.telemetry.trail.RETRY_S", 0.0)
    lost = []
    trail = Trail([SyslogSink(str(tmp_path / "log"), CLOCK)], CLOCK, observer="here", lost=lost.append)
    assert not trail.write_entry({})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "log"))
        assert trail.write_entry({})
    (tmp_path / "log").unlink()
    assert not trail.write_entry({})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "log"))
        assert trail.write_entry({}), "a new socket is opened after a failure"
    assert lost == ["syslog"] * 2


@pytest.mark.parametrize("address", ["log", "tcp://10.0.0.1:514", "udp://10.0.0.1", "udp://:514", "udp://10.0.0.1:x"])
def test_an_invalid_syslog_address_is_a_start_error(address):
    with pytest.raises(StartError, match="udp://host:514"):
        SyslogSink(address, CLOCK)


def test_a_syslog_host_name_that_cannot_be_resolved_is_a_start_error():
    with pytest.raises(StartError, match="cannot be resolved"):
        SyslogSink("udp://nowhere.invalid:514", CLOCK)
