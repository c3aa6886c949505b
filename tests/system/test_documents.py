"""The documents build without a warning: no broken link, no missing page; and a page loads nothing from elsewhere."""

import re
import subprocess

import pytest

from tests.processes import ROOT, python_of

pytestmark = [pytest.mark.slow, pytest.mark.documents]

#: Content that a browser would load from another server.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="(?:https?:)?//|<link\b[^>]*\bhref="(?:https?:)?//|url\((?:https?:)?//"""
)


def build(source, target):
    command = [python_of(".venv-docs"), "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    command += [
        "--conf-dir",
        source / "docs" / "sphinx",
        "--doctree-dir",
        target / "doctrees",
        source,
        target / "pages",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_documents_build_without_a_warning(tmp_path):
    done = build(ROOT, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    pages = {path.relative_to(tmp_path / "pages"): path.read_text() for path in (tmp_path / "pages").rglob("*.html")}
    sources = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")]
    assert {page.relative_to(ROOT).with_suffix(".html") for page in sources} - set(pages) == set()
    assert [str(path) for path, text in pages.items() if FETCHED.search(text)] == []
    index = pages[(ROOT / "docs/README.html").relative_to(ROOT)]
    assert all(
        f'href="{path.name}' in index for path in (tmp_path / "pages/docs").glob("*.html") if path.name != "README.html"
    )


def test_a_broken_link_fails_the_build(tmp_path):
    """The same for a missing heading, and for a page that the index does not name."""
    docs = tmp_path / "checkout" / "docs"
    (docs / "sphinx").mkdir(parents=True)
    (docs / "sphinx" / "conf.py").write_text((ROOT / "docs/sphinx/conf.py").read_text())
    (docs / "README.md").write_text("# Index\n\n## Pages\n\n[a](a.md) [b](absent.md) [c](a.md#absent) [d](sphinx)\n")
    (docs / "a.md").write_text("# A\n\nwords\n")
    (docs / "alone.md").write_text("# Alone\n\nwords\n")
    done = build(tmp_path / "checkout", tmp_path / "built")
    assert done.returncode == 1
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    for wrong in ("absent.md", "'absent'", "alone.md"):
        assert any(wrong in line for line in warnings), (wrong, warnings)
    assert not any("sphinx'" in line for line in warnings)
