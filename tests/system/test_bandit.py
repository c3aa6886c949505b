"""bandit finds nothing in the source except the findings listed here, each with the reason why it may stay."""

import json
import subprocess

import pytest

from tests.processes import ROOT, python_of

pytestmark = pytest.mark.slow

#: {bandit's rule: why it is switched off}
EVERYWHERE = {
    "B404": "importing subprocess is no fault; B603 looks at its use",
    "B405": "importing ElementTree is no fault; B314 looks at its use",
    "B105": "words like 'password' as a key of a body, a state's name or an empty value; ruff's S105 asks for a reason at each other",
}
#: {(file, rule): why it may stay}
LOOKED_AT = {
    ("accelerator/drivers/vendor_cli.py", "B603"): "a list of words in fixed forms, no shell, with a time limit",
    ("agent/virt/libvirt_calls.py", "B603"): "no shell; the paths are our own",
    ("accelerator/service/history_service.py", "B113"): "a dictionary called requests, not the library",
    ("cli/agent/unit.py", "B603"): "systemctl with words of our own, no shell, with a time limit",
    ("cli/agent/unit.py", "B108"): "compared with: directories that the unit hides from the agent",
    ("cli/backup/backup_files.py", "B603"): "no shell; the database server's own tools, asked for by the operator",
    ("agent/virt/domain_xml.py", "B314"): "XML of the hypervisor, which is trusted with the guests themselves",
    (
        "agent/virt/libvirt_driver.py",
        "B108",
    ): "/dev/shm is where QEMU keeps the memory of emulated devices; only a file that it left is unlinked there",
    ("identity/embedded.py", "B106"): "a host has no password; the empty hash is one that no password has",
    ("identity/oidc/device_login.py", "B106"): "the name of a method: a client without a secret",
    ("identity/host_registry.py", "B106"): "the empty secret of a host that has none: nothing has this digest",
    ("config.py", "B104"): "compared with, not bound to",
    ("core/ids.py", "B311"): "seeded identifiers of rehearsals and tests; tokens come from `secrets`",
    (
        "db/statements.py",
        "B608",
    ): "names of tables and columns are our own, never a client's; values are bound",
}


def test_bandit_finds_only_the_listed_findings():
    command = [python_of(".venv-audit"), "-m", "bandit", "--quiet", "--recursive", ROOT / "src", "--format", "json"]
    command += ["--skip", ",".join(EVERYWHERE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    report = json.loads(done.stdout)
    assert report["errors"] == []
    source = str(ROOT / "src" / "moorage") + "/"
    found = {(one["filename"].removeprefix(source), one["test_id"]): one for one in report["results"]}
    assert set(found) - set(LOOKED_AT) == set(), [found[place] for place in set(found) - set(LOOKED_AT)]
    assert set(LOOKED_AT) - set(found) == set(), "nothing is found there any more: take it off the list"
