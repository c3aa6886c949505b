import json

import pytest

from moorage.agent.tracker.published_state import PublishedFile, published_union
from moorage.agent.tree.provider_tree_diff import PublishedProvider
from moorage.core.errors import StartError

ROW = PublishedProvider("host", True, frozenset({"CUSTOM_B", "CUSTOM_A"}), frozenset({"CUSTOM_T"}))


def test_the_published_state_is_read_back_by_the_next_agent(tmp_path):
    path = tmp_path / "state" / "published.json"
    PublishedFile(path).save({"u": ROW})
    assert PublishedFile(path).content == {"u": ROW}
    assert json.loads(path.read_text())["providers"]["u"]["classes"] == ["CUSTOM_A", "CUSTOM_B"]


def test_saving_an_unchanged_state_writes_nothing(tmp_path):
    path = tmp_path / "published.json"
    file = PublishedFile(path)
    file.save({"u": ROW})
    before = path.stat()
    file.save({"u": ROW})
    assert path.stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"version": 1}', '{"version": 2, "providers": {}}', '{"version": 1, "providers": {"u": 1}}']
)
def test_a_damaged_file_is_a_start_error_that_names_it(tmp_path, text):
    path = tmp_path / "published.json"
    path.write_text(text)
    with pytest.raises(StartError, match=r"published\.json"):
        PublishedFile(path)


def test_the_union_of_two_published_states_has_every_provider_class_and_trait_of_both():
    before = {"u": ROW, "gone": ROW}
    after = {"u": PublishedProvider("host", False, frozenset({"CUSTOM_C"})), "new": ROW}
    assert published_union(before, after) == {
        "u": PublishedProvider("host", True, ROW.classes | {"CUSTOM_C"}, ROW.traits),
        "gone": ROW,
        "new": ROW,
    }
