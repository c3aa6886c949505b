"""Rules for all files of the repository."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))

# Written in parts, so that this file does not contain the forbidden names.
REGISTRY_HOSTS = [f"{name}.{domain}" for name, domain in [
    ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("debian", "org/debian"),
    ("ubuntu", "com/ubuntu"), ("docker", "io"), ("crates", "io"), ("proxy.golang", "org"),
]]  # fmt: skip
MACHINE_PATH = re.compile(r"(?<![\w.}/])/(?:work|root|home|Users)/[\w.]")
OPEN_NOTE = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def files() -> list[Path]:
    """All files that are, or would be, committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    hidden = re.compile(r"(?:^|/)(?:\.(?!ci/)|__pycache__|[^/]*\.egg-info)")
    paths = (path for path in ROOT.rglob("*") if not hidden.search(str(path.relative_to(ROOT))))
    return [path for path in paths if path.is_file()]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """``path:line: text`` of every hit in a text file."""
    hits = []
    for path in files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                hits.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    return hits


def test_no_file_names_a_package_registry():
    assert lines_with(re.compile("|".join(map(re.escape, REGISTRY_HOSTS)))) == []


def test_no_file_names_a_path_of_one_machine():
    assert lines_with(MACHINE_PATH) == []


def test_no_file_contains_an_open_note():
    assert lines_with(OPEN_NOTE) == []


def test_no_file_contains_a_merge_conflict():
    assert lines_with(re.compile(r"^(?:<{7}|>{7}) ")) == []


# ------------------------------------------------------------------------------------------- requirements


def pinned(lock: Path) -> dict[str, tuple[str, int]]:
    """``{name: (version, number of hashes)}`` of a requirements file."""
    found: dict[str, tuple[str, int]] = {}
    entries = re.split(r"(?<!\\)\n", lock.read_text())
    for entry in entries:
        if named := re.match(r"([A-Za-z0-9._-]+)(?:\[[\w,-]+\])?==([^\s;\\]+)", entry):
            hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry)
            # The same package may have several lines for several Python versions.
            before = found.get(canonical(named[1]), ("", len(hashes)))[1]
            found[canonical(named[1])] = (named[2], min(before, len(hashes)))
        else:
            assert not entry.strip(), f"{lock.name}: not an exact version: {entry[:80]!r}"
    return found


def wanted(source: Path) -> dict[str, str]:
    """``{name: requirement as written}`` of a ``*.in`` file."""
    lines = [line for line in source.read_text().splitlines() if line and line[0] not in "#-"]
    return {canonical(re.split(r"[\[=<>~!]", line)[0]): line for line in lines}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_file_has_exact_versions_and_hashes_and_no_host(lock):
    options = {line for line in lock.read_text().splitlines() if line.startswith("-")}
    assert "://" not in lock.read_text()
    assert options == set()
    packages = pinned(lock)
    assert packages
    assert [name for name, (_, hashes) in packages.items() if not hashes] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_file_satisfies_its_requirements(lock):
    packages = pinned(lock)
    for name, line in wanted(lock.with_suffix(".in")).items():
        assert name in packages, f"run `make lock`: {name} is missing"
        if "==" in line:
            assert packages[name][0] == line.partition("==")[2]


def test_the_package_and_the_lock_files_have_the_same_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    locked = (
        wanted(ROOT / "requirements/runtime.in")
        | wanted(ROOT / "requirements/keystonemiddleware.in")
        | wanted(ROOT / "requirements/libvirt.in")
        | wanted(ROOT / "requirements/nvidia.in")
        | wanted(ROOT / "requirements/signatures.in")
        | wanted(ROOT / "requirements/oidc.in")
        | wanted(ROOT / "requirements/otel.in")
    )
    build_only = {"setuptools"}
    assert {canonical(re.split(r"[\[=<>~!]", line)[0]) for line in declared} == set(locked) - build_only


def test_the_page_about_installing_names_every_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs/guides/installing.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \|.*\| `(requirements/[\w.]+)` \| (.*) \|$", page, re.MULTILINE)
    assert {extra for extra, _, _ in rows} == set(extras)
    for extra, lock, brings in rows:
        for requirement in extras[extra]:
            name = re.split(r"[\[=<>~!]", requirement)[0]
            assert brings == name
            assert canonical(name) in pinned(ROOT / lock)


# ------------------------------------------------------------------------------------------------ commands


def test_ci_runs_the_test_command_of_the_readme():
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(
        r"^\$? *(make \w+)",
        "\n".join(re.findall(r"^```.*?\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)),
        re.MULTILINE,
    )
    assert commands[:2] == ["make demo", "make test"], "the README opens with its two commands"
    run = (ROOT / ".ci/run").read_text()
    assert re.findall(r"^run ([\w-]+)$", run, re.MULTILINE) == ["test", "test-all"]
    assert re.findall(r"^ +make (.+?) && return$", run, re.MULTILINE) == ['"$1"'], "with nothing added to them"


def test_every_target_of_the_makefile_has_a_description():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE):
        assert re.search(rf"^{target}:.* ## \S", makefile, re.MULTILINE), f"`make help` does not list {target}"
