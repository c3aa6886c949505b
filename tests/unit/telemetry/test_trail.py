"""The audit trail: its lines, its file, which processes share and rotate, lost entries, and reading."""

import json
import multiprocessing
import os
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.errors import StartError, Unavailable
from moorage.telemetry.trail import ENTRY_PREFIX, MAX_ENTRY_BYTES, Trail, TrailFile
from moorage.telemetry.trail_reading import TrailFilter, TrailReader
from tests.conftest import START

EVERYTHING = TrailFilter()


def opened(path, *, rotate_bytes=1 << 20, keep=3, **options):
    sink = TrailFile(path, rotate_bytes=rotate_bytes, keep=keep)
    return Trail([sink], options.pop("clock", VirtualClock(START)), observer="here", **options)


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_each_entry_has_a_time_and_the_next_number(tmp_path):
    trail = opened(tmp_path / "t")
    for action in "ab":
        assert trail.write_entry({"action": action})
    first, second = lines(tmp_path / "t")
    assert first["eventTime"] == "2026-03-01T09:30:00Z"
    assert (tmp_path / "t").read_bytes().startswith(ENTRY_PREFIX)
    process, _, number = second["id"].rpartition("-")
    assert (first["id"], number) == (f"{process}-1", "2")


def test_the_file_of_the_trail_is_readable_only_by_its_owner(tmp_path):
    opened(tmp_path / "t").write_entry({})
    assert (tmp_path / "t").stat().st_mode & 0o777 == 0o600


def test_a_symbolic_link_in_place_of_the_file_is_not_followed(tmp_path):
    (tmp_path / "t").symlink_to(tmp_path / "elsewhere")
    assert not opened(tmp_path / "t").write_entry({})
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("text", ["x" * 100_000, "\0" * 5000, "\udcff" * 10, "\N{SNOWMAN}" * 3000])
def test_an_entry_with_long_texts_is_cut_to_the_maximum_size(tmp_path, text):
    trail = opened(tmp_path / "t")
    entry = {
        "action": text,
        "target": {"id": text, "ids": [text] * 20},
        "initiator": {"roles": [text] * 16, "name": text},
    }
    assert trail.write_entry(entry)
    (raw,) = (tmp_path / "t").read_bytes().splitlines(keepends=True)
    assert len(raw) <= MAX_ENTRY_BYTES
    assert json.loads(raw)["id"].endswith("-1")


def test_the_file_is_rotated_and_the_oldest_one_is_deleted(tmp_path):
    trail = opened(tmp_path / "t", rotate_bytes=5000, keep=2)
    for number in range(100):
        trail.write_entry({"action": str(number), "pad": "x" * 200})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t", "t.1", "t.2", "t.lock"]
    kept = [int(entry["action"]) for entry in TrailReader(tmp_path / "t", EVERYTHING).read_entries()]
    assert kept == list(range(kept[0], 100)), "the kept entries must be in order and without a gap"
    assert 20 < kept[0] < 80
    for path in (tmp_path / "t.1", tmp_path / "t.2"):
        assert 5000 <= path.stat().st_size < 5000 + MAX_ENTRY_BYTES + 1000


def append(path, worker, count):
    trail = opened(path, rotate_bytes=30_000, keep=1000)
    for number in range(count):
        if not trail.write_entry({"action": f"{worker}/{number}", "pad": "x" * 100}):
            os._exit(3)


def test_concurrent_processes_and_threads_lose_no_entry_while_the_file_is_rotated(tmp_path):
    path = tmp_path / "t"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=append, args=(path, worker, 400)) for worker in range(4)]
    for process in processes:
        process.start()
    trail = opened(path, rotate_bytes=30_000, keep=1000)
    threads = [
        threading.Thread(target=lambda name=name: [trail.write_entry({"action": f"{name}/{n}"}) for n in range(200)])
        for name in "ab"
    ]
    for thread in threads:
        thread.start()
    for one in (*processes, *threads):
        one.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    reading = TrailReader(path, EVERYTHING)
    found = [entry["action"] for entry in reading.read_entries()]
    wanted = {f"{worker}/{n}" for worker in range(4) for n in range(400)} | {
        f"{t}/{n}" for t in "ab" for n in range(200)
    }
    assert (len(found), set(found), reading.damaged) == (len(wanted), wanted, 0)
    assert (tmp_path / "t.5").exists(), "the file was not rotated"


def test_a_forked_process_numbers_its_entries_separately(tmp_path):
    trail = opened(tmp_path / "t")
    trail.write_entry({})
    child = os.fork()
    if not child:
        trail.write_entry({})
        os._exit(0)
    os.waitpid(child, 0)
    trail.write_entry({})
    ids = [entry["id"] for entry in lines(tmp_path / "t")]
    assert len(set(ids)) == 3
    assert [one.rpartition("-")[2] for one in ids] == ["1", "1", "2"]


def test_after_the_file_was_renamed_a_new_one_is_created(tmp_path, monkeypatch):
    monkeypatch.setattr(TrailFile, "CHECK_PERIOD_S", 0.0)
    trail = opened(tmp_path / "t")
    trail.write_entry({"action": "a"})
    (tmp_path / "t").rename(tmp_path / "old")
    trail.write_entry({"action": "b"})
    assert [entry["action"] for entry in lines(tmp_path / "t")] == ["b"]


def test_entries_that_cannot_be_written_are_counted_as_lost_until_writing_works_again(tmp_path, caplog):
    caplog.set_level("INFO")
    lost = []
    trail = opened(tmp_path / "missing" / "t", lost=lost.append)
    assert [trail.write_entry({}), trail.write_entry({})] == [False, False]
    assert lost == ["file", "file"]
    assert [record.message for record in caplog.records] == ["entries of the audit trail are lost"], (
        "the loss must be logged once"
    )
    (tmp_path / "missing").mkdir()
    assert trail.write_entry({"action": "again"})
    assert caplog.records[-1].message == "the audit trail is written again"
    assert [entry["id"].rpartition("-")[2] for entry in lines(tmp_path / "missing" / "t")] == ["3"], (
        "the gap in the numbers shows the loss"
    )


def test_an_entry_is_lost_if_the_disk_is_full_and_a_change_that_needs_it_is_refused():
    lost = []
    trail = Trail([TrailFileAt("/dev/full")], VirtualClock(START), observer="here", lost=lost.append)
    assert not trail.write_entry({"action": "a"})
    assert lost == ["file"]
    with pytest.raises(Unavailable, match="audit trail") as refused:
        trail.write_before_change({"action": "a"})
    assert refused.value.error_code == "moorage.trail"


class TrailFileAt:
    """Like `TrailFile`, but for a device such as /dev/full; `TrailFile` accepts only regular files."""

    name = "file"

    def __init__(self, path):
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)

    def write_line(self, line):
        os.write(self._descriptor, line)

    def start(self):
        pass

    def close(self):
        os.close(self._descriptor)


def test_an_unusable_path_is_a_start_error(tmp_path):
    (tmp_path / "file").touch()
    for path in (Path("/dev/full"), tmp_path, tmp_path / "file" / "t"):
        with pytest.raises(StartError, match="path"):
            opened(path).start()
        assert not opened(path).write_entry({})


def test_a_missing_directory_is_created_at_the_start(tmp_path):
    trail = opened(tmp_path / "a" / "b" / "t")
    trail.start()
    assert trail.write_entry({})
    assert (tmp_path / "a" / "b").stat().st_mode & 0o077 == 0


def test_a_partly_written_entry_is_skipped_and_counted_by_the_reader(tmp_path):
    path = tmp_path / "t"
    trail = opened(path)
    trail.write_entry({"action": "a"})
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    trail.write_entry({"action": "b"})
    trail.write_entry({"action": "c"})
    reading = TrailReader(path, EVERYTHING)
    assert [entry["action"] for entry in reading.read_entries()] == ["a", "b", "c"]
    assert reading.damaged == 1


ENTRY = {
    "action": "os_compute_api:servers:create",
    "outcome": "failure",
    "initiator": {"id": "u1", "name": "ann", "project_id": "p1", "project_name": "red"},
    "target": {"typeURI": "compute/servers/metadata", "id": "s1", "part": "key"},
    "request_id": "req-1",
    "global_request_id": "req-0",
}


@pytest.mark.parametrize(
    ("wanted", "is_found"),
    [
        ({"user": "u1"}, True),
        ({"user": "ann"}, True),
        ({"user": "red"}, False),
        ({"project": "p1"}, True),
        ({"project": "red"}, True),
        ({"project": "blue"}, False),
        ({"resource": "s1"}, True),
        ({"resource": "key"}, True),
        ({"resource": "compute/servers"}, True),
        ({"resource": "compute/serv"}, False),
        ({"resource": "s2"}, False),
        ({"action": "servers:"}, True),
        ({"action": "OS_compute_api:*"}, True),
        ({"action": "servers:*"}, False),
        ({"outcome": "failure"}, True),
        ({"outcome": "success"}, False),
        ({"request_id": "req-1"}, True),
        ({"request_id": "req-0"}, True),
        ({"request_id": "req-2"}, False),
        ({"since": START}, True),
        ({"since": START + timedelta(seconds=1)}, False),
        ({"until": START + timedelta(seconds=1)}, True),
        ({"until": START}, False),
        ({"user": "ann", "outcome": "success"}, False),
    ],
)
def test_each_filter_finds_only_matching_entries(tmp_path, wanted, is_found):
    trail = opened(tmp_path / "t")
    trail.write_entry(ENTRY)
    assert len(list(TrailReader(tmp_path / "t", TrailFilter(**wanted)).read_entries())) == is_found


def test_following_the_trail_returns_each_appended_entry_once_across_rotations(tmp_path):
    """Also if another process still appends to a rotated file."""
    path = tmp_path / "t"
    trail = opened(path, rotate_bytes=5000, keep=3)
    trail.write_entry({"action": "before"})
    late = os.open(path, os.O_WRONLY | os.O_APPEND)
    turns = iter(range(1000))

    def meanwhile(_seconds):
        turn = next(turns)
        for number in range(10):
            trail.write_entry({"action": f"{turn}/{number}", "pad": "x" * 300})
        if turn == 2:
            os.write(late, b'{"eventTime":"2026-03-01T09:30:00Z","action":"late"}\n')

    found = []
    for entry in TrailReader(path, EVERYTHING).follow_entries(sleep=meanwhile, from_now=True):
        found.append(entry["action"])
        if len(found) == 201:
            break
    os.close(late)
    assert "before" not in found
    assert "late" in found
    found.remove("late")
    assert found == [f"{turn}/{number}" for turn in range(20) for number in range(10)]


def test_following_the_trail_waits_until_the_file_exists(tmp_path):
    trail = opened(tmp_path / "t")
    following = TrailReader(tmp_path / "t", EVERYTHING).follow_entries(
        sleep=lambda _: trail.write_entry({"action": "a"}), from_now=True
    )
    assert next(following)["action"] == "a"
