import contextlib
import hashlib
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.errors import Invalid, StartError, TooLarge
from moorage.images.base import DigestMismatch, ImageRecord
from moorage.images.cache import DigestCache
from moorage.images.views import ProjectView, ServiceView

VIEW = ProjectView("p")


class Shelf:
    """An image source in memory, which counts the fetches of each image."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.barrier: threading.Event | None = None

    def put(self, image_id: str, data: bytes, *, size: int | None = None) -> ImageRecord:
        self.data[image_id] = data
        digest = hashlib.sha512(data).hexdigest()
        known = len(data) if size is None else size
        return ImageRecord(image_id, image_id, "private", "p", "active", known, "sha512", digest, {}, frozenset())

    def find(self, view: ServiceView, properties: Mapping[str, str]) -> list[ImageRecord]:
        return []

    def get(self, view: ServiceView, image_id: str) -> ImageRecord | None:
        return None

    @contextlib.contextmanager
    def open(self, view: ServiceView, image_id: str) -> Iterator[Iterator[bytes]]:
        self.fetched.append(image_id)
        if self.barrier:
            self.barrier.wait(5)
        data = self.data[image_id]
        yield (data[start : start + 1000] for start in range(0, len(data), 1000))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(datetime(2026, 11, 20, tzinfo=UTC))


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def cache(tmp_path: Path, clock: VirtualClock) -> Iterator[DigestCache]:
    cache = DigestCache(tmp_path / "cache", max_bytes=10_000, clock=clock)
    yield cache
    cache.close()


def read(cache: DigestCache, image: ImageRecord, source: Shelf) -> bytes:
    with cache.open(image, source, VIEW) as cached:
        data = cached.file.read()
        assert cached.path.read_bytes() == data
        assert cached.size_bytes == len(data)
        return data


def test_second_use_does_not_fetch(cache, shelf):
    image = shelf.put("a", b"x" * 2500)
    assert read(cache, image, shelf) == read(cache, image, shelf) == b"x" * 2500
    assert shelf.fetched == ["a"]


def test_two_images_with_the_same_data_are_fetched_once(cache, shelf):
    first, second = shelf.put("a", b"same"), shelf.put("b", b"same")
    assert read(cache, first, shelf) == read(cache, second, shelf)
    assert shelf.fetched == ["a"]


def test_tampered_data_is_refused_and_nothing_is_kept(cache, shelf, tmp_path):
    image = shelf.put("a", b"x" * 2500)
    shelf.data["a"] = b"y" * 2500
    with pytest.raises(DigestMismatch, match="record says"):
        read(cache, image, shelf)
    assert cache.digests() == []
    assert not list((tmp_path / "cache").glob("*.part"))


@pytest.mark.parametrize("sent", [b"x" * 2499, b"x" * 2501], ids=["short", "long"])
def test_a_wrong_size_is_refused(cache, shelf, sent):
    image = shelf.put("a", b"x" * 2500)
    shelf.data["a"] = sent
    with pytest.raises(DigestMismatch):
        read(cache, image, shelf)


def test_an_endless_stream_is_cut_at_the_promised_size(cache, shelf):
    image = shelf.put("a", b"x" * 2000)
    taken = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(1)
            yield b"x" * 1000

    class Endless(Shelf):
        @contextlib.contextmanager
        def open(self, view, image_id):
            yield endless()

    with pytest.raises(DigestMismatch):
        read(cache, image, Endless())
    assert len(taken) == 3


def test_damage_on_the_disk_is_noticed_and_healed(cache, shelf, tmp_path):
    image = shelf.put("a", b"x" * 2500)
    read(cache, image, shelf)
    (tmp_path / "cache" / image.hash_value).write_bytes(b"z" * 2500)
    assert read(cache, image, shelf) == b"x" * 2500
    assert shelf.fetched == ["a", "a"]


def test_the_least_recently_used_leaves_first(cache, shelf, clock):
    images = {}
    for name in "abc":
        images[name] = shelf.put(name, name.encode() * 3000)
        read(cache, images[name], shelf)
        clock.sleep(1)
    read(cache, images["a"], shelf)
    clock.sleep(1)
    read(cache, shelf.put("d", b"d" * 3000), shelf)
    assert images["b"].hash_value not in cache.digests()
    assert images["a"].hash_value in cache.digests()
    assert cache.size_bytes() <= 10_000


def test_what_is_in_use_is_not_evicted(cache, shelf, clock):
    held = shelf.put("a", b"a" * 6000)
    with cache.open(held, shelf, VIEW) as cached:
        clock.sleep(1)
        read(cache, shelf.put("b", b"b" * 6000), shelf)
        assert cached.path.read_bytes() == b"a" * 6000


def test_larger_than_the_cache_is_refused_before_it_is_fetched(cache, shelf):
    with pytest.raises(TooLarge, match="10000"):
        read(cache, shelf.put("a", b"x" * 10_001), shelf)
    assert shelf.fetched == []


def test_an_image_without_sha512_is_refused(cache, shelf):
    image = shelf.put("a", b"x")
    for algo, value in ((None, None), ("md5", image.hash_value), ("sha512", "../../etc/passwd")):
        odd = ImageRecord("a", "a", "private", "p", "active", 1, algo, value, {}, frozenset())
        with pytest.raises(Invalid, match="sha512"):
            read(cache, odd, shelf)


def test_concurrent_uses_of_one_digest_fetch_once(cache, shelf):
    image = shelf.put("a", b"x" * 2500)
    shelf.barrier = threading.Event()
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(read(cache, image, shelf))) for _ in range(8)]
    for thread in threads:
        thread.start()
    shelf.barrier.set()
    for thread in threads:
        thread.join(10)
    assert results == [b"x" * 2500] * 8
    assert shelf.fetched == ["a"]


def test_a_link_planted_in_the_cache_is_not_followed(cache, shelf, tmp_path):
    image = shelf.put("a", b"x" * 100)
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "cache" / f"{image.hash_value}.part").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        read(cache, image, shelf)
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_a_directory_open_to_others_is_refused_with_the_remedy(tmp_path, clock):
    directory = tmp_path / "open"
    directory.mkdir(mode=0o755)
    with pytest.raises(StartError, match="chmod 0700"):
        DigestCache(directory, max_bytes=1, clock=clock)


def test_parts_of_a_killed_process_are_removed_but_not_those_being_written(tmp_path, clock, shelf):
    directory = tmp_path / "cache"
    first = DigestCache(directory, max_bytes=10_000, clock=clock)
    abandoned = directory / ("0" * 128 + ".part")
    abandoned.write_bytes(b"half")
    image = shelf.put("a", b"x" * 100)
    shelf.barrier = threading.Event()
    thread = threading.Thread(target=read, args=(first, image, shelf))
    thread.start()
    while not shelf.fetched:
        pass
    second = DigestCache(directory, max_bytes=10_000, clock=clock)
    shelf.barrier.set()
    thread.join(10)
    assert not abandoned.exists()
    assert second.digests() == [image.hash_value]


def test_files_are_private(cache, shelf, tmp_path):
    image = shelf.put("a", b"x")
    read(cache, image, shelf)
    assert (tmp_path / "cache" / image.hash_value).stat().st_mode & 0o077 == 0


def test_use_survives_a_clock_that_jumps(cache, shelf, clock):
    image = shelf.put("a", b"x")
    read(cache, image, shelf)
    clock.sleep(timedelta(days=400).total_seconds())
    assert read(cache, image, shelf) == b"x"
