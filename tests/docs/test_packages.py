"""The bill of materials has every locked package, with an allowed licence."""

import json
import re

import pytest

from tests.docs.test_repository import ROOT, pinned
from tools import packages

#: Allowed licences. LGPL only in extras, as separately installed libraries.
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Zlib",
}  # fmt: skip
LGPL = {"libvirt-python", "psycopg", "psycopg-binary"}


def test_every_locked_package_is_in_the_bill_of_materials():
    bom = packages.sbom()
    listed = {(one["name"], one["version"]) for one in bom["components"]}
    for lock in packages.LOCKS:
        for name, (version, hashes) in pinned(ROOT / "requirements" / f"{lock}.txt").items():
            assert (name, version) in listed
            assert hashes
    references = [one["bom-ref"] for one in bom["components"]]
    assert len(references) == len(set(references)) == len(listed)
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bom["serialNumber"])
    assert packages.sbom() == bom, "the same packages make the same document"


def test_the_requirements_files_of_all_extras_are_checked():
    page = (ROOT / "docs/guides/installing.md").read_text()
    assert set(re.findall(r"`requirements/([\w-]+)\.txt` \|", page)) == set(packages.LOCKS)


def test_every_package_has_an_allowed_licence():
    for package in packages.locked().values():
        words = set(re.split(r" (?:AND|OR) |[()]", packages.licence_of(package.name))) - {""}
        assert words, f"{package.name} has no licence in its metadata"
        if package.name in LGPL:
            assert {word[:5] for word in words} == {"LGPL-"}
        else:
            assert words <= ALLOWED, package


def test_the_page_of_licences_equals_the_metadata_of_the_packages():
    assert packages.PAGE.read_text() == packages.licences(), "stale; run: make licences"


@pytest.mark.parametrize(
    ("affected", "hit"),
    [
        ({"versions": ["{version}"]}, True),
        ({"versions": ["0.0.1"]}, False),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99999"}]}]}, True),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "{version}"}]}]}, False),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"last_affected": "{version}"}]}]}, True),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "99999"}]}]}, False),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, False),
    ],
)
def test_exported_advisories_are_compared_with_the_locked_versions(tmp_path, affected, hit):
    version = pinned(ROOT / "requirements/runtime.txt")["falcon"][0]
    affected = json.loads(json.dumps(affected).replace("{version}", version))
    record = {"id": "PYSEC-0-1", "affected": [{"package": {"ecosystem": "PyPI", "name": "Falcon"}, **affected}]}
    (tmp_path / "PYSEC-0-1.json").write_text(json.dumps(record))
    assert [(one.name, advisory) for one, advisory, _ in packages.known(tmp_path)] == (
        [("falcon", "PYSEC-0-1")] if hit else []
    )


def test_a_failed_query_for_advisories_does_not_count_as_a_pass(tmp_path, capsys):
    with pytest.raises(FileNotFoundError):
        list(packages.known(tmp_path))
    assert packages.verdict(1, "ERROR:pip_audit._cli:falcon: Dependency not found and could not be audited") == 3
    assert "not asked" in capsys.readouterr().out
    assert packages.verdict(1, "Found 1 known vulnerability in 1 package") == 1
    assert packages.verdict(0, "No known vulnerabilities found") == 0
