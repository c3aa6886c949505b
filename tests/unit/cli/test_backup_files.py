"""The files of a state directory that a backup contains."""

from moorage.cli.backup.backup_files import state_files


def test_the_audit_trail_is_left_out_for_an_older_one_must_not_be_put_in_its_place(tmp_path):
    for name in ("users.yaml", "trail.jsonl", "trail.jsonl.1", "trail.jsonl.lock"):
        (tmp_path / name).touch()
    assert [str(path) for path in state_files(tmp_path)] == ["users.yaml"]
