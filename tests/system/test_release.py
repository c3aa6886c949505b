"""A release as CONTRIBUTING.md describes it, of a copy of this checkout, signed with a key of its own."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.servers import program

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
VERSION = "0.1.0"
MAINTAINER = "Maintainer <maintainer@example.org>"


@pytest.fixture(scope="module")
def keys():
    """GnuPG's directory of a maintainer. Its path is short, because it holds a socket."""
    if program("gpg") is None or program("dpkg-deb") is None:
        pytest.skip("no release here: gpg (Debian: gnupg) or dpkg-deb is not installed")
    path = Path(tempfile.mkdtemp(prefix="mkey-"))
    gpg(path, "--passphrase", "", "--quick-generate-key", MAINTAINER, "ed25519", "sign", "never")
    yield path
    subprocess.run(["gpgconf", "--homedir", path, "--kill", "all"], check=False)
    shutil.rmtree(path)


def gpg(home, *words, **options):
    command = ["gpg", "--homedir", home, "--batch", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A repository of its own with the files of this checkout."""
    copy = tmp_path_factory.mktemp("release") / "moorage"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    git(copy, "init", "--quiet")
    git(copy, "config", "user.name", "Maintainer")
    git(copy, "config", "user.email", "maintainer@example.org")
    git(copy, "config", "commit.gpgSign", "false")
    commit(copy)
    return copy


def git(where, *words, **environment):
    return subprocess.run(
        ["git", *words], cwd=where, check=True, capture_output=True, text=True, env=os.environ | environment
    ).stdout


def commit(where):
    git(where, "add", "--all", "--force")
    git(where, "commit", "--quiet", "--message", "a change")


def release(checkout, keys):
    command = [sys.executable, "tools/release.py", "--key", MAINTAINER]
    environment = os.environ | {"GNUPGHOME": str(keys)}
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def released(checkout, keys):
    """The directory of the release."""
    page = checkout / "CHANGELOG.md"
    before = page.read_text()
    page.write_text(before.replace("## Unreleased", f"## Unreleased\n\n## {VERSION} (2026-12-01)", 1))
    commit(checkout)
    done = release(checkout, keys)
    assert done.returncode == 0, done.stderr
    return checkout / "dist" / "release"


def test_a_release_has_its_files_their_checksums_and_a_signature(released):
    names = {path.name for path in released.iterdir()}
    (package,) = [name for name in names if name.endswith(".deb")]
    wanted = {f"moorage-{VERSION}-py3-none-any.whl", f"moorage-{VERSION}.cdx.json", package, "SHA256SUMS"}
    assert names == wanted | {"SHA256SUMS.asc"}


@pytest.fixture
def downloaded(released, keys, tmp_path):
    """(directory with the files, GnuPG's directory) of a person who has the maintainer's public key."""
    home = Path(tempfile.mkdtemp(prefix="mkey-"))
    gpg(home, "--import", input=gpg(keys, "--armor", "--export", MAINTAINER))
    shutil.copytree(released, tmp_path / "files")
    yield tmp_path / "files", home
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
    shutil.rmtree(home)


def verified(files, home):
    """The commands of docs/guides/installing.md."""
    script = "gpg --verify SHA256SUMS.asc SHA256SUMS && sha256sum --check --strict SHA256SUMS"
    environment = os.environ | {"GNUPGHOME": str(home)}
    return subprocess.run(["sh", "-c", script], cwd=files, check=False, capture_output=True, env=environment).returncode


def test_whoever_has_the_public_key_can_verify_it(downloaded):
    assert script_is_in("docs/guides/installing.md")
    assert verified(*downloaded) == 0


def script_is_in(page):
    text = (ROOT / page).read_text()
    return "gpg --verify SHA256SUMS.asc SHA256SUMS" in text and "sha256sum --check --strict SHA256SUMS" in text


@pytest.mark.parametrize("name", [f"moorage-{VERSION}-py3-none-any.whl", "SHA256SUMS", f"moorage-{VERSION}.cdx.json"])
def test_a_changed_file_is_found(downloaded, name):
    files, home = downloaded
    with (files / name).open("ab") as file:
        file.write(b"\n")
    assert verified(files, home) != 0


def test_a_signature_of_somebody_else_is_found(downloaded):
    files, home = downloaded
    other = Path(tempfile.mkdtemp(prefix="mkey-"))
    try:
        gpg(other, "--passphrase", "", "--quick-generate-key", MAINTAINER, "ed25519", "sign", "never")
        gpg(other, "--yes", "--armor", "--detach-sign", files / "SHA256SUMS")
        assert verified(files, home) != 0
    finally:
        subprocess.run(["gpgconf", "--homedir", other, "--kill", "all"], check=False)
        shutil.rmtree(other)


def test_the_tag_is_signed(released, checkout, keys):
    git(checkout, "tag", "--verify", f"v{VERSION}", GNUPGHOME=str(keys))


def test_a_version_is_released_once(released, checkout, keys):
    done = release(checkout, keys)
    assert (done.returncode, done.stderr.startswith(f"the tag v{VERSION} exists")) == (1, True)


def test_neither_changed_files_nor_a_version_without_changes_are_released(checkout, keys, released):
    git(checkout, "checkout", "--quiet", "HEAD~1")
    try:
        assert "CHANGELOG.md has no heading '## 0.1.0" in release(checkout, keys).stderr
        (checkout / "README.md").write_text("other")
        done = release(checkout, keys)
        assert done.returncode == 1
        assert "README.md" in done.stderr
    finally:
        git(checkout, "checkout", "--quiet", "--force", "-")
