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
from moorage.images.directory import ImageDirectory
from moorage.images.document import stored_document
from moorage.images.model import Image, ImageStatus, Visibility
from moorage.images.views import OwnerView

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


def test_an_image_survives_with_every_attribute(directory, tmp_path):
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


def test_a_property_may_be_called_like_what_we_keep(directory, tmp_path):
    image = Image(id=ID, created_at=NOW, updated_at=NOW, properties={"md5": "mine", "upload_id": "mine", "format": "1"})
    directory.create(image)
    assert open_directory(tmp_path).image(ID) == image


def test_an_upload_is_visible_whole_or_not_at_all(directory, image, tmp_path):
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
def test_an_upload_of_another_length_leaves_nothing(directory, image, tmp_path, size, error):
    with pytest.raises(error):
        directory.upload(ID, [b"x" * 1000] * 3, size_bytes=size)
    assert directory.image(ID).status == ImageStatus.QUEUED
    assert files(tmp_path) == {f"{ID}.json"}


def test_an_upload_whose_sender_fails_leaves_nothing(directory, image, tmp_path):
    def chunks():
        yield b"x"
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        directory.upload(ID, chunks(), size_bytes=None)
    assert directory.image(ID).status == ImageStatus.QUEUED
    assert files(tmp_path) == {f"{ID}.json"}
    directory.upload(ID, [b"again"], size_bytes=5)
    assert data(directory) == b"again"


def test_an_endless_upload_stops_at_the_bound(tmp_path):
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


def test_a_second_upload_is_refused_while_one_is_under_way_and_after_it(directory, image):
    def chunks():
        yield b"first"
        with pytest.raises(Conflict, match="cannot go from saving to saving"):
            directory.upload(ID, [b"second"], size_bytes=6)

    directory.upload(ID, chunks(), size_bytes=5)
    with pytest.raises(Conflict, match="cannot go from active to saving"):
        directory.upload(ID, [b"second"], size_bytes=6)
    assert data(directory) == b"first"


def test_of_many_uploads_at_once_one_wins_whole(directory, image, tmp_path):
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


def test_changes_at_once_are_all_kept(directory, image):
    def add(number):
        directory.change(ID, lambda now: dataclasses.replace(now, tags=now.tags | {f"t{number}"}))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert len(directory.image(ID).tags) == 40


def test_creations_at_once_of_one_id_make_one(directory):
    def create(number):
        try:
            directory.create(Image(id=ID, created_at=NOW, updated_at=NOW, name=str(number)))
        except Conflict:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(20))) == 1


def test_a_change_that_is_refused_changes_nothing(directory, image):
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


def test_a_download_under_way_survives_the_deletion(directory, image):
    directory.upload(ID, [b"x" * 10], size_bytes=10)
    with directory.data(ID) as file:
        directory.remove(ID, lambda now: None)
        assert file.read() == b"x" * 10
    with pytest.raises(NotFound):
        directory.data(ID)


def test_two_directories_on_one_path_see_each_others_changes(directory, image, tmp_path):
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
def killed(directory, image, tmp_path):
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


def test_after_a_kill_the_next_start_cleans_up(killed, tmp_path):
    directory = open_directory(tmp_path)
    assert directory.image(ID).status == ImageStatus.QUEUED
    assert files(tmp_path) == {f"{ID}.json"}


def test_after_a_kill_the_upload_can_be_repeated_without_a_restart(killed, directory):
    directory.upload(ID, [b"again"], size_bytes=5)
    assert data(directory) == b"again"


def test_a_start_leaves_an_upload_of_another_process_alone(directory, image, tmp_path):
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


def test_a_file_that_cannot_be_read_hides_one_image_only(directory, image, tmp_path, caplog):
    other = "22222222-2222-4222-8222-222222222222"
    (tmp_path / "images" / f"{other}.json").write_text("{nope")
    assert [row.id for row in directory.images()] == [ID]
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize("odd", ["", "nope", "../x", "../../etc/passwd", ID + "/../x", ID + "\0", ID.replace("-", ".")])
def test_odd_ids_are_no_file_names(directory, image, odd):
    assert directory.image(odd) is None
    assert directory.get(RED, odd) is None
    for use in (lambda: directory.data(odd), lambda: directory.remove(odd, lambda now: None)):
        with pytest.raises(NotFound):
            use()
    with pytest.raises(NotFound):
        directory.upload(odd, [b"x"], size_bytes=1)


def test_files_are_for_us_alone(directory, image, tmp_path):
    directory.upload(ID, [b"x"], size_bytes=1)
    for path in (tmp_path / "images").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_directory_open_to_others_is_refused(tmp_path):
    (tmp_path / "images").mkdir(mode=0o755)
    with pytest.raises(StartError, match="chmod 0700"):
        open_directory(tmp_path)


def test_the_record_is_json_for_people(directory, image, tmp_path):
    assert json.loads((tmp_path / "images" / f"{ID}.json").read_text())["name"] == "a"


# ------------------------------------------------------------------------------------------------- ids


OTHER = "abcdefab-1111-4111-8111-abcdefabcdef"


def an_image(image_id=OTHER, **more) -> Image:
    formats = {"disk_format": "raw", "container_format": "bare"}
    return Image(**{"id": image_id, "created_at": NOW, "updated_at": NOW, "name": "a", "owner": "red"} | formats | more)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("spelled", [OTHER, OTHER.upper()])
def test_the_id_of_a_deleted_image_stays_taken(directory, tmp_path, is_restarted, spelled):
    """A user who remembers the image by its id must not get another image."""
    directory.create(an_image())
    directory.upload(OTHER, [b"x"], size_bytes=1)
    directory.remove(OTHER, lambda now: None)
    later = open_directory(tmp_path) if is_restarted else directory
    with pytest.raises(Conflict, match="already exists"):
        later.create(an_image(spelled, owner="blue"))
    assert later.image(spelled) is None
    assert files(tmp_path) == set()


def test_nothing_of_a_deleted_image_is_kept_but_its_id(directory, tmp_path):
    directory.create(an_image(properties={"secret": "word"}))
    directory.remove(OTHER, lambda now: None)
    assert (tmp_path / "images" / "deleted" / OTHER).read_bytes() == b""


@pytest.mark.parametrize("call", ["rename", "unlink", "truncate"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_no_death_while_an_image_is_deleted_frees_its_id(directory, tmp_path, monkeypatch, call, when):
    """At each step: the image exists completely, or it is gone and its id stays used."""
    directory.create(an_image())
    directory.upload(OTHER, [b"x"], size_bytes=1)

    class Killed(BaseException):
        pass

    owner = os if call == "truncate" else type(tmp_path)
    real = getattr(owner, call)

    def dying(*arguments, **options):
        if when == "after":
            real(*arguments, **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, call, dying)
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


def test_ids_that_differ_in_case_are_one_id(directory):
    directory.create(an_image(OTHER.upper()))
    assert directory.image(OTHER).id == directory.image(OTHER.upper()).id == OTHER
    with pytest.raises(Conflict):
        directory.create(an_image())
    directory.upload(OTHER.upper(), [b"x"], size_bytes=1)
    assert [image.id for image in directory.images()] == [OTHER]
    directory.remove(OTHER.title(), lambda now: None)
    assert directory.images() == []


def as_before(tmp_path, image, data):
    """Files as the previous release wrote them: under the id as it was sent."""
    document = stored_document(image) | {"id": image.id, "status": "active", "size": len(data)}
    (tmp_path / "images" / f"{image.id}.json").write_text(json.dumps(document))
    (tmp_path / "images" / f"{image.id}.data").write_bytes(data)


def test_an_image_of_the_release_before_is_found_by_its_id_in_any_case(directory, tmp_path):
    as_before(tmp_path, an_image(OTHER.upper()), b"theirs")
    later = open_directory(tmp_path)
    for spelled in (OTHER, OTHER.upper()):
        with later.data(spelled) as file:
            assert file.read() == b"theirs"
    with pytest.raises(Conflict):
        later.create(an_image())


@pytest.mark.parametrize("first_is_upper", [True, False])
def test_of_two_images_whose_ids_differed_in_case_the_older_one_has_the_id(directory, tmp_path, caplog, first_is_upper):
    """The later one may be an attempt to replace the older one. It is set aside, and the log tells operators."""
    upper, lower = OTHER.upper(), OTHER
    first, second = (upper, lower) if first_is_upper else (lower, upper)
    as_before(tmp_path, an_image(first), b"first")
    as_before(tmp_path, an_image(second, created_at=NOW.replace(hour=12), owner="blue"), b"second")
    later = open_directory(tmp_path)
    with later.data(OTHER) as file:
        assert file.read() == b"first"
    assert [image.owner for image in later.images()] == ["red"]
    assert (tmp_path / "images" / f"{second}.data.aside").read_bytes() == b"second"
    assert "set aside" in caplog.text
    with open_directory(tmp_path).data(OTHER) as file:
        assert file.read() == b"first"
