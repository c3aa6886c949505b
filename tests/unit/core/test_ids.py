import os
import random
import re
import uuid

import pytest

from moorage.core.ids import RandomIds, SeededIds, is_uuid


@pytest.mark.parametrize("ids", [RandomIds(), SeededIds(7)])
def test_ids_are_unique_uuids_of_version_4(ids):
    made = [ids.uuid() for _ in range(50)]
    assert len(set(made)) == 50
    assert all(uuid.UUID(text).version == 4 and is_uuid(text) for text in made)
    requests = [ids.request_id() for _ in range(50)]
    assert len(set(requests)) == 50
    assert all(re.fullmatch(r"req-[0-9a-f-]{36}", text) for text in requests)
    assert {(uuid.UUID(text[4:]).version, uuid.UUID(text[4:]).variant) for text in requests} == {(4, uuid.RFC_4122)}


def test_the_request_ids_of_a_forked_process_are_others():
    ids, (reads, writes) = RandomIds(), os.pipe()
    if (child := os.fork()) == 0:
        os.write(writes, ids.request_id().encode())
        os._exit(0)
    own = ids.request_id()
    os.waitpid(child, 0)
    of_child = os.read(reads, 40).decode()
    assert re.fullmatch(r"req-[0-9a-f-]{36}", of_child)
    assert of_child != own


def test_request_ids_do_not_depend_on_the_seed_that_others_set():
    ids, found = RandomIds(), set()
    for _ in range(3):
        random.seed(0)
        found.add(ids.request_id())
    assert len(found) == 3


def test_the_same_seed_gives_the_same_ids():
    first, second = SeededIds(7), SeededIds(7)
    assert [first.uuid(), first.request_id()] == [second.uuid(), second.request_id()]
    assert SeededIds(8).uuid() != SeededIds(7).uuid()


def test_only_the_canonical_form_counts_as_a_uuid():
    text = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e"
    assert is_uuid(text)
    assert is_uuid(text.upper())
    for other in (text.replace("-", ""), "{" + text + "}", "urn:uuid:" + text, text + "\n", "", "x"):
        assert not is_uuid(other)
