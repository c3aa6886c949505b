import contextlib
import hashlib
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.errors import Invalid, StartError, TooLarge
from moorage.images.base import DigestMismatch, ImageRecord, ProjectView, ServiceView
from moorage.images.cache import DigestCache

VIEW = ProjectView("p")


class ImagesInMemory:
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
def source_images() -> ImagesInMemory:
    return ImagesInMemory()


@pytest.fixture
def cache(tmp_path: Path, clock: VirtualClock) -> Iterator[DigestCache]:
    cache = DigestCache(tmp_path / "cache", max_bytes=10_000, clock=clock)
    yield cache
    cache.close()


def read(cache: DigestCache, image: ImageRecord, source: ImagesInMemory) -> bytes:
    with cache.open(image, source, VIEW) as cached:
        data = cached.file.read()
        assert cached.path.read_bytes() == data
        assert cached.size_bytes == len(data)
        return data


def test_the_second_use_of_an_image_reads_it_from_the_cache(cache, source_images):
    image = source_images.put("a", b"x" * 2500)
    assert read(cache, image, source_images) == read(cache, image, source_images) == b"x" * 2500
    assert source_images.fetched == ["a"]


def test_two_images_with_the_same_data_are_fetched_once(cache, source_images):
    first, second = source_images.put("a", b"same"), source_images.put("b", b"same")
    assert read(cache, first, source_images) == read(cache, second, source_images)
    assert source_images.fetched == ["a"]


def test_data_with_a_wrong_digest_is_refused_and_not_cached(cache, source_images, tmp_path):
    image = source_images.put("a", b"x" * 2500)
    source_images.data["a"] = b"y" * 2500
    with pytest.raises(DigestMismatch, match="record says"):
        read(cache, image, source_images)
    assert cache.digests() == []
    assert not list((tmp_path / "cache").glob("*.part"))


@pytest.mark.parametrize("sent", [b"x" * 2499, b"x" * 2501], ids=["short", "long"])
def test_data_of_another_size_than_the_images_is_refused(cache, source_images, sent):
    image = source_images.put("a", b"x" * 2500)
    source_images.data["a"] = sent
    with pytest.raises(DigestMismatch):
        read(cache, image, source_images)


def test_an_endless_download_ends_soon_after_the_size_of_the_image(cache, source_images):
    image = source_images.put("a", b"x" * 2000)
    taken = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(1)
            yield b"x" * 1000

    class Endless(ImagesInMemory):
        @contextlib.contextmanager
        def open(self, view, image_id):
            yield endless()

    with pytest.raises(DigestMismatch):
        read(cache, image, Endless())
    assert len(taken) == 3


def test_a_damaged_file_in_the_cache_is_fetched_again(cache, source_images, tmp_path):
    image = source_images.put("a", b"x" * 2500)
    read(cache, image, source_images)
    (tmp_path / "cache" / image.hash_value).write_bytes(b"z" * 2500)
    assert read(cache, image, source_images) == b"x" * 2500
    assert source_images.fetched == ["a", "a"]


def test_the_least_recently_used_image_is_evicted_first(cache, source_images, clock):
    images = {}
    for name in "abc":
        images[name] = source_images.put(name, name.encode() * 3000)
        read(cache, images[name], source_images)
        clock.sleep(1)
    read(cache, images["a"], source_images)
    clock.sleep(1)
    read(cache, source_images.put("d", b"d" * 3000), source_images)
    assert images["b"].hash_value not in cache.digests()
    assert images["a"].hash_value in cache.digests()
    assert cache.size_bytes() <= 10_000


def test_an_image_in_use_is_not_evicted(cache, source_images, clock):
    held = source_images.put("a", b"a" * 6000)
    with cache.open(held, source_images, VIEW) as cached:
        clock.sleep(1)
        read(cache, source_images.put("b", b"b" * 6000), source_images)
        assert cached.path.read_bytes() == b"a" * 6000


def test_an_image_larger_than_the_cache_is_refused_before_it_is_fetched(cache, source_images):
    with pytest.raises(TooLarge, match="10000"):
        read(cache, source_images.put("a", b"x" * 10_001), source_images)
    assert source_images.fetched == []


def test_an_image_without_sha512_is_refused(cache, source_images):
    image = source_images.put("a", b"x")
    for algo, value in ((None, None), ("md5", image.hash_value), ("sha512", "../../etc/passwd")):
        odd = ImageRecord("a", "a", "private", "p", "active", 1, algo, value, {}, frozenset())
        with pytest.raises(Invalid, match="sha512"):
            read(cache, odd, source_images)


def test_concurrent_uses_of_one_image_fetch_it_once(cache, source_images):
    image = source_images.put("a", b"x" * 2500)
    source_images.barrier = threading.Event()
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(read(cache, image, source_images))) for _ in range(8)]
    for thread in threads:
        thread.start()
    source_images.barrier.set()
    for thread in threads:
        thread.join(10)
    assert results == [b"x" * 2500] * 8
    assert source_images.fetched == ["a"]


def test_a_symbolic_link_in_the_cache_directory_is_not_followed(cache, source_images, tmp_path):
    image = source_images.put("a", b"x" * 100)
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "cache" / f"{image.hash_value}.part").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        read(cache, image, source_images)
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_a_cache_directory_that_other_users_can_read_is_refused_with_the_command_to_fix_it(tmp_path, clock):
    directory = tmp_path / "open"
    directory.mkdir(mode=0o755)
    with pytest.raises(StartError, match="chmod 0700"):
        DigestCache(directory, max_bytes=1, clock=clock)


def test_partial_files_of_a_killed_process_are_removed_but_not_those_being_written(tmp_path, clock, source_images):
    directory = tmp_path / "cache"
    first = DigestCache(directory, max_bytes=10_000, clock=clock)
    abandoned = directory / ("0" * 128 + ".part")
    abandoned.write_bytes(b"half")
    image = source_images.put("a", b"x" * 100)
    source_images.barrier = threading.Event()
    thread = threading.Thread(target=read, args=(first, image, source_images))
    thread.start()
    while not source_images.fetched:
        pass
    second = DigestCache(directory, max_bytes=10_000, clock=clock)
    source_images.barrier.set()
    thread.join(10)
    assert not abandoned.exists()
    assert second.digests() == [image.hash_value]


def test_cached_files_are_readable_only_by_their_owner(cache, source_images, tmp_path):
    image = source_images.put("a", b"x")
    read(cache, image, source_images)
    assert (tmp_path / "cache" / image.hash_value).stat().st_mode & 0o077 == 0


def test_a_cached_image_stays_usable_when_the_clock_jumps(cache, source_images, clock):
    image = source_images.put("a", b"x")
    read(cache, image, source_images)
    clock.sleep(timedelta(days=400).total_seconds())
    assert read(cache, image, source_images) == b"x"
