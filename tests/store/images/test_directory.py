import dataclasses
import hashlib
import json
import multiprocessing
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from moorage.core.clock import SystemClock
from moorage.core.errors import Conflict, Invalid, NotFound, StartError, TooLarge
from moorage.core.ids import RandomIds
from moorage.images.base import OwnerView
from moorage.images.directory import ImageDirectory
from moorage.images.document import stored_document
from moorage.images.model import Image, ImageStatus, Visibility

ID = "11111111-1111-4111-8111-111111111111"
NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def open_directory(path, **options) -> ImageDirectory:
    return ImageDirectory(path / "images", clock=SystemClock(), ids=RandomIds(), **options)


RED = OwnerView("red")


@pytest.fixture
def directory(tmp_path) -> ImageDirectory:
    return open_directory(tmp_path)


@pytest.fixture
def image(directory) -> Image:
    image = Image(
        id=ID, created_at=NOW, updated_at=NOW, name="a", owner="red", disk_format="raw", container_format="bare"
    )
    directory.create(image)
    return image


def data(directory) -> bytes:
    with directory.open(RED, ID) as chunks:
        return b"".join(chunks)


def files(tmp_path) -> set[str]:
    return {path.name for path in (tmp_path / "images").iterdir() if path.is_file()}


def test_every_attribute_of_an_image_reads_back_the_same_after_a_restart(directory, tmp_path):
    image = Image(
        id=ID,
        created_at=NOW,
        updated_at=NOW,
        name="a",
        owner="red",
        visibility=Visibility.PUBLIC,
        protected=True,
        hidden=True,
        disk_format="raw",
        container_format="bare",
        min_disk_gb=1,
        min_ram_mb=2,
        tags=frozenset({"x"}),
        properties={"name of mine": "1", "status2": "2"},
    )
    directory.create(image)
    assert open_directory(tmp_path).image(ID) == image


def test_a_property_may_have_the_name_of_an_internal_field(directory, tmp_path):
    image = Image(id=ID, created_at=NOW, updated_at=NOW, properties={"md5": "mine", "upload_id": "mine", "format": "1"})
    directory.create(image)
    assert open_directory(tmp_path).image(ID) == image


def test_an_upload_is_visible_only_when_it_is_complete(directory, image, tmp_path):
    seen = []

    def chunks():
        for _ in range(3):
            yield b"x" * 1000
            seen.append(
                (
                    directory.image(ID).status,
                    directory.find(RED, {}),
                    [name for name in files(tmp_path) if "data" in name],
                )
            )
            with pytest.raises(NotFound):
                directory.data(ID)

    done = directory.upload(ID, chunks(), size_bytes=3000)
    assert seen == [(ImageStatus.SAVING, [], [])] * 3
    assert done.status == ImageStatus.ACTIVE
    assert done.sha512 == hashlib.sha512(b"x" * 3000).hexdigest()
    assert data(directory) == b"x" * 3000
    assert [record.id for record in directory.find(RED, {})] == [ID]
    assert files(tmp_path) == {f"{ID}.json", f"{ID}.data"}


@pytest.mark.parametrize(
    ("size", "error"), [(2999, TooLarge), (3001, Invalid)], ids=["longer than announced", "shorter than announced"]
)
def test_an_upload_longer_or_shorter_than_announced_is_removed(directory, image, tmp_path, size, error):
    with pytest.raises(error):
        directory.upload(ID, [b"x" * 1000] * 3, size_bytes=size)
    assert directory.image(ID).status == ImageStatus.QUEUED
    assert files(tmp_path) == {f"{ID}.json"}


def test_an_upload_whose_sender_fails_is_removed_and_can_be_repeated(directory, image, tmp_path):
    def chunks():
        yield b"x"
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        directory.upload(ID, chunks(), size_bytes=None)
    assert directory.image(ID).status == ImageStatus.QUEUED
    assert files(tmp_path) == {f"{ID}.json"}
    directory.upload(ID, [b"again"], size_bytes=5)
    assert data(directory) == b"again"


def test_an_upload_larger_than_the_maximum_is_stopped(tmp_path):
    directory = open_directory(tmp_path, max_image_bytes=10_000)
    directory.create(Image(id=ID, created_at=NOW, updated_at=NOW))
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield b"x" * 1000

    with pytest.raises(TooLarge, match="10000"):
        directory.upload(ID, endless(), size_bytes=None)
    assert len(taken) == 11
    with pytest.raises(TooLarge, match="10000"):
        directory.upload(ID, endless(), size_bytes=10_001)
    assert len(taken) == 11


def test_a_second_upload_is_refused_during_and_after_the_first(directory, image):
    def chunks():
        yield b"first"
        with pytest.raises(Conflict, match="cannot go from saving to saving"):
            directory.upload(ID, [b"second"], size_bytes=6)

    directory.upload(ID, chunks(), size_bytes=5)
    with pytest.raises(Conflict, match="cannot go from active to saving"):
        directory.upload(ID, [b"second"], size_bytes=6)
    assert data(directory) == b"first"


def test_exactly_one_of_several_concurrent_uploads_succeeds_with_all_its_data(directory, image, tmp_path):
    start = threading.Barrier(8)

    def upload(letter):
        start.wait()
        try:
            directory.upload(ID, [letter * 1000] * 50, size_bytes=50_000)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(upload, [bytes([65 + number]) for number in range(8)]))
    assert won.count(True) == 1
    assert data(directory) == bytes([65 + won.index(True)]) * 50_000
    assert files(tmp_path) == {f"{ID}.json", f"{ID}.data"}


def test_concurrent_changes_of_an_image_are_all_kept(directory, image):
    def add(number):
        directory.change(ID, lambda now: dataclasses.replace(now, tags=now.tags | {f"t{number}"}))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert len(directory.image(ID).tags) == 40


def test_exactly_one_of_several_concurrent_creations_of_an_id_succeeds(directory):
    def create(number):
        try:
            directory.create(Image(id=ID, created_at=NOW, updated_at=NOW, name=str(number)))
        except Conflict:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(20))) == 1


def test_a_refused_change_leaves_the_image_unchanged(directory, image):
    def refuse(now):
        raise Conflict("no")

    with pytest.raises(Conflict):
        directory.change(ID, refuse)
    assert directory.image(ID) == image


def test_an_image_deleted_during_its_upload_stays_deleted(directory, image, tmp_path):
    def chunks():
        yield b"x"
        directory.remove(ID, lambda now: None)

    with pytest.raises(NotFound):
        directory.upload(ID, chunks(), size_bytes=1)
    assert directory.image(ID) is None
    assert files(tmp_path) == set()


def test_a_download_can_finish_after_the_image_was_deleted(directory, image):
    directory.upload(ID, [b"x" * 10], size_bytes=10)
    with directory.data(ID) as file:
        directory.remove(ID, lambda now: None)
        assert file.read() == b"x" * 10
    with pytest.raises(NotFound):
        directory.data(ID)


def test_two_processes_on_one_directory_see_each_others_changes(directory, image, tmp_path):
    other = open_directory(tmp_path)
    for number in range(20):
        directory.change(ID, lambda now, number=number: dataclasses.replace(now, name=str(number)))
        assert other.image(ID).name == str(number)
    other.upload(ID, [b"x"], size_bytes=1)
    assert directory.get(RED, ID).status == "active"


def upload_and_hang(path, begun):
    directory = open_directory(path)

    def chunks():
        yield b"x" * 100_000
        begun.set()
        signal.pause()

    directory.upload(ID, chunks(), size_bytes=200_000)


@pytest.fixture
def killed_upload(directory, image, tmp_path):
    """A process was killed during an upload of the image."""
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    process = context.Process(target=upload_and_hang, args=(tmp_path, begun))
    process.start()
    assert begun.wait(30)
    os.kill(process.pid, signal.SIGKILL)
    process.join(10)
    assert any(name.endswith(".part") for name in files(tmp_path))
    assert directory.image(ID).status == ImageStatus.SAVING


def test_the_next_start_removes_the_upload_of_a_killed_process(killed_upload, tmp_path):
    directory = open_directory(tmp_path)
    assert directory.image(ID).status == ImageStatus.QUEUED
    assert files(tmp_path) == {f"{ID}.json"}


def test_the_upload_of_a_killed_process_can_be_repeated_without_a_restart(killed_upload, directory):
    directory.upload(ID, [b"again"], size_bytes=5)
    assert data(directory) == b"again"


def test_a_start_does_not_remove_a_running_upload_of_another_process(directory, image, tmp_path):
    def chunks():
        yield b"ab"
        open_directory(tmp_path)
        yield b"cd"

    directory.upload(ID, chunks(), size_bytes=4)
    assert data(directory) == b"abcd"


def test_a_kill_between_data_and_record_is_repaired(directory, image, tmp_path):
    """The data was renamed but the record not written: the image is queued, and the next upload replaces the data."""
    directory.change(ID, lambda now: dataclasses.replace(now, status=ImageStatus.SAVING, upload_id="dead"))
    (tmp_path / "images" / f"{ID}.data").write_bytes(b"old")
    repaired = open_directory(tmp_path)
    assert repaired.image(ID).status == ImageStatus.QUEUED
    repaired.upload(ID, [b"new"], size_bytes=3)
    assert data(repaired) == b"new"


def test_data_without_an_image_is_removed_at_the_start(directory, tmp_path):
    (tmp_path / "images" / f"{ID}.data").write_bytes(b"orphan")
    open_directory(tmp_path)
    assert files(tmp_path) == set()


def test_a_record_that_cannot_be_read_hides_only_its_own_image(directory, image, tmp_path, caplog):
    other = "22222222-2222-4222-8222-222222222222"
    (tmp_path / "images" / f"{other}.json").write_text("{nope")
    assert [row.id for row in directory.images()] == [ID]
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize("odd", ["", "nope", "../x", "../../etc/passwd", ID + "/../x", ID + "\0", ID.replace("-", ".")])
def test_an_id_that_is_no_uuid_is_never_used_as_a_file_name(directory, image, odd):
    assert directory.image(odd) is None
    assert directory.get(RED, odd) is None
    for use in (lambda: directory.data(odd), lambda: directory.remove(odd, lambda now: None)):
        with pytest.raises(NotFound):
            use()
    with pytest.raises(NotFound):
        directory.upload(odd, [b"x"], size_bytes=1)


def test_image_files_are_readable_only_by_their_owner(directory, image, tmp_path):
    directory.upload(ID, [b"x"], size_bytes=1)
    for path in (tmp_path / "images").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_an_image_directory_that_other_users_can_read_is_refused(tmp_path):
    (tmp_path / "images").mkdir(mode=0o755)
    with pytest.raises(StartError, match="chmod 0700"):
        open_directory(tmp_path)


def test_the_record_of_an_image_is_a_json_file(directory, image, tmp_path):
    assert json.loads((tmp_path / "images" / f"{ID}.json").read_text())["name"] == "a"


# ------------------------------------------------------------------------------------------------- ids


OTHER = "abcdefab-1111-4111-8111-abcdefabcdef"


def an_image(image_id=OTHER, **more) -> Image:
    formats = {"disk_format": "raw", "container_format": "bare"}
    return Image(**{"id": image_id, "created_at": NOW, "updated_at": NOW, "name": "a", "owner": "red"} | formats | more)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("spelled", [OTHER, OTHER.upper()])
def test_the_id_of_a_deleted_image_cannot_be_used_again(directory, tmp_path, is_restarted, spelled):
    """A user who remembers the image by its id must not get another image."""
    directory.create(an_image())
    directory.upload(OTHER, [b"x"], size_bytes=1)
    directory.remove(OTHER, lambda now: None)
    later = open_directory(tmp_path) if is_restarted else directory
    with pytest.raises(Conflict, match="already exists"):
        later.create(an_image(spelled, owner="blue"))
    assert later.image(spelled) is None
    assert files(tmp_path) == set()


def test_only_the_id_of_a_deleted_image_is_kept(directory, tmp_path):
    directory.create(an_image(properties={"secret": "word"}))
    directory.remove(OTHER, lambda now: None)
    assert (tmp_path / "images" / "deleted" / OTHER).read_bytes() == b""


@pytest.mark.parametrize("call", ["rename", "unlink", "truncate"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_during_the_deletion_of_an_image_does_not_free_its_id(directory, tmp_path, monkeypatch, call, when):
    """After a kill at any file operation, the image exists completely, or it is gone and its id stays used."""
    directory.create(an_image())
    directory.upload(OTHER, [b"x"], size_bytes=1)

    class Killed(BaseException):
        pass

    owner = os if call == "truncate" else type(tmp_path)
    real = getattr(owner, call)

    def call_and_be_killed(*arguments, **options):
        if when == "after":
            real(*arguments, **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, call, call_and_be_killed)
        with pytest.raises(Killed):
            directory.remove(OTHER, lambda now: None)
    later = open_directory(tmp_path)
    if later.image(OTHER) is not None:
        assert (call, when) == ("rename", "before")
        with later.data(OTHER) as file:
            assert file.read() == b"x"
    else:
        assert not (tmp_path / "images" / f"{OTHER}.data").exists()
    with pytest.raises(Conflict):
        later.create(an_image())


def test_ids_that_differ_only_in_case_are_the_same_id(directory):
    directory.create(an_image(OTHER.upper()))
    assert directory.image(OTHER).id == directory.image(OTHER.upper()).id == OTHER
    with pytest.raises(Conflict):
        directory.create(an_image())
    directory.upload(OTHER.upper(), [b"x"], size_bytes=1)
    assert [image.id for image in directory.images()] == [OTHER]
    directory.remove(OTHER.title(), lambda now: None)
    assert directory.images() == []


def write_as_previous_release(tmp_path, image, data):
    """Writes the files as the previous release did, which named them by the id in the case that the client used."""
    document = stored_document(image) | {"id": image.id, "status": "active", "size": len(data)}
    (tmp_path / "images" / f"{image.id}.json").write_text(json.dumps(document))
    (tmp_path / "images" / f"{image.id}.data").write_bytes(data)


def test_an_image_of_the_previous_release_is_found_by_its_id_in_any_case(directory, tmp_path):
    write_as_previous_release(tmp_path, an_image(OTHER.upper()), b"theirs")
    later = open_directory(tmp_path)
    for spelled in (OTHER, OTHER.upper()):
        with later.data(spelled) as file:
            assert file.read() == b"theirs"
    with pytest.raises(Conflict):
        later.create(an_image())


@pytest.mark.parametrize("first_is_upper", [True, False])
def test_of_two_images_of_the_previous_release_whose_ids_differ_only_in_case_the_older_one_is_kept(
    directory, tmp_path, caplog, first_is_upper
):
    """The later one may be an attempt to replace the older one. Its files are set aside, and the log says so."""
    upper, lower = OTHER.upper(), OTHER
    first, second = (upper, lower) if first_is_upper else (lower, upper)
    write_as_previous_release(tmp_path, an_image(first), b"first")
    write_as_previous_release(tmp_path, an_image(second, created_at=NOW.replace(hour=12), owner="blue"), b"second")
    later = open_directory(tmp_path)
    with later.data(OTHER) as file:
        assert file.read() == b"first"
    assert [image.owner for image in later.images()] == ["red"]
    assert (tmp_path / "images" / f"{second}.data.aside").read_bytes() == b"second"
    assert "set aside" in caplog.text
    with open_directory(tmp_path).data(OTHER) as file:
        assert file.read() == b"first"
