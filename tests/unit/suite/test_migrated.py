"""Databases of tests that are copied from a template."""

from tests import migrated


def test_a_database_that_another_process_creates_at_the_same_time_is_not_overwritten(tmp_path, monkeypatch):
    path = tmp_path / "placement.sqlite"
    template = tmp_path / "template.sqlite"
    template.write_bytes(b"template")

    def another_process_is_faster(_schema):
        path.write_bytes(b"in use")
        return template

    monkeypatch.setattr(migrated, "sqlite_template", another_process_is_faster)
    migrated.create_migrated("placement", path)

    assert path.read_bytes() == b"in use"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["placement.sqlite", "template.sqlite"]
