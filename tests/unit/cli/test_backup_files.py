"""The files of a state directory that a backup contains."""

from moorage.cli.backup.backup_files import state_files


def test_a_backup_does_not_contain_the_audit_trail_so_a_restore_cannot_replace_it(tmp_path):
    for name in ("users.yaml", "trail.jsonl", "trail.jsonl.1", "trail.jsonl.lock"):
        (tmp_path / name).touch()
    assert [str(path) for path in state_files(tmp_path)] == ["users.yaml"]
