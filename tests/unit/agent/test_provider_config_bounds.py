"""Hostile provider configuration files cause a clear error within limited time and memory.

Each test measures a separate process. The limits are generous, so that a busy machine passes, but a file whose aliases
were expanded would exceed them.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.agent.provider_config.load import MAX_FILE_BYTES, MAX_TOTAL_BYTES

#: Memory for one file, in addition to that of an interpreter with the modules loaded.
MEMORY_MIB = 400
#: CPU for one file of the maximum size.
FILE_CPU_S = 10
#: CPU for a directory of the maximum size.
ALL_CPU_S = 60

_PROGRAM = """
import json, resource, sys
from pathlib import Path
from moorage.agent.provider_config.load import ProviderFiles, check_directory, config_schema
config_schema()
def peak_mib(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def cpu_s(): return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
memory, cpu = peak_mib(), cpu_s()
report = check_directory(ProviderFiles(Path(sys.argv[1])))
print(json.dumps({
    "faults": [str(fault) for fault in report.faults[:3]], "number": len(report.faults),
    "entries": len(report.configs), "mib": peak_mib() - memory, "cpu_s": cpu_s() - cpu,
}))
"""


def check_in_process(directory: Path) -> dict:
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, directory], check=True, capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, **limited,
    )  # fmt: skip
    return json.loads(done.stdout)


def put(directory: Path, data: str | bytes, name: str = "a.yaml") -> None:
    path = directory / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    path.chmod(0o644)


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "provider_config"
    path.mkdir(mode=0o755)
    return path


def filled(line: str, head: str = "") -> str:
    """As many lines as fit into a file of the maximum size."""
    return head + line * ((MAX_FILE_BYTES - len(head)) // len(line))


META = "meta: {schema_version: '1.0'}\n"
PROVIDERS = META + "providers:\n"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 40)
)
MAP_BOMB = "a0: &a0 {k: v}\n" + "".join(
    f"a{level}: &a{level} {{x: *a{level - 1}, y: *a{level - 1}}}\n" for level in range(1, 40)
)
MERGE_BOMB = (
    "a0: &a0 {"
    + ", ".join(f"k{number}: 1" for number in range(900))
    + "}\n"
    + "".join(f"a{number}: {{<<: [{', '.join(['*a0'] * 90)}]}}\n" for number in range(1, 11))
)

HOSTILE = {
    "aliases that mean a thousand million values": (BOMB, "after its aliases are expanded"),
    "the same with maps": (MAP_BOMB, "after its aliases are expanded"),
    "maps merged again and again": (MERGE_BOMB, "has more than 100000 values"),
    "an alias to itself": ("a: &a [*a]\n", "is inside its own anchor"),
    "a million aliases": (filled("- *a\n", "- &a 1\n"), "has more than 1000 aliases"),
    "a million levels of lists": ("[" * 1_000_000, "has more than 40 levels"),
    "a million levels of maps": ("{a: " * 250_000, "has more than 40 levels"),
    "levels by indentation": ("".join(" " * depth + "a:\n" for depth in range(1400)), "has more than 40 levels"),
    "a million lines of a list": (filled("- \n"), "has more than 100000 values"),
    "a million lines of one scalar": (filled("x\n", "a: |\n").replace("x\n", " \n"), "[meta]"),
    "a million line breaks": ("\n" * 1_000_000, "is empty"),
    "a million comments": (filled("#\n"), "is empty"),
    "a million documents": (filled("--- 1\n"), "more than one document"),
    "as many keys as fit": ("".join(f"k{number}: 1\n" for number in range(90_000)), "[meta]"),
    "the same key a million times": (filled("a: 1\n"), "occurs twice"),
    "as many faulty entries as fit": (filled("- 1\n", PROVIDERS)[: 4 * 90_000], "is not a map"),
    "a key of a megabyte": ("k" * 1_000_000 + ": 1\n", "not YAML"),
    "a number of a million digits": (PROVIDERS + "- " + "9" * 1_000_000, "is not a map"),
    "a name of a megabyte": (PROVIDERS + "- identification: {name: '" + "n" * 900_000 + "'}\n", "is too long"),
    "anchors without end": (filled("- &aaaa 1\n"), "has more than 100000 values"),
    "tabs": (PROVIDERS + "\t- identification: {}\n", "indent with spaces, not with tabs"),
    "UTF-16": (META.encode("utf-16"), "is not UTF-8 text"),
    "latin-1": ("meta: é".encode("latin-1"), "is not UTF-8 text"),
    "a byte of nothing": (b"meta: \x00", "remove the invisible character"),
    "a million bytes of noise": (bytes(range(256)) * 4000, "is not UTF-8 text"),
    "control characters": (b"meta: \x1b[2J", "remove the invisible character"),
    "a tag that makes objects": ("meta: !!python/object/apply:os.system ['true']\n", "is unknown"),
    "a duplicate key": (META + "meta: {}\n", "the key 'meta' occurs twice, first in line 1"),
    "a key that is a list": ("? [1]\n: 2\n", "a key of a map is not a plain text"),
    "an unfinished string": ("meta: '" + "x" * 1_000_000, "is not YAML"),
    "more than a file may have": ("#" * (MAX_FILE_BYTES + 1), "is larger than"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_within_the_limits_of_time_and_memory(directory, name):
    data, says = HOSTILE[name]
    put(directory, data)
    found = check_in_process(directory)
    says = "meta" if says == "[meta]" else says
    assert any(says in fault for fault in found["faults"]), found["faults"]
    assert all(len(fault) < 1000 for fault in found["faults"])
    assert found["entries"] == 0
    assert found["mib"] < MEMORY_MIB
    assert found["cpu_s"] < FILE_CPU_S


def entry(number: int) -> str:
    return f"- identification: {{name: p{number:06}}}\n  traits: {{additional: [CUSTOM_T{number:06}]}}\n"


@pytest.mark.extended  # half a minute of CPU
@pytest.mark.slow
def test_a_directory_of_the_maximum_size_is_read_within_the_limits_of_time_and_memory(directory):
    """Thousands of providers in a few files, as a process with many bare-metal nodes could have."""
    size, number, part = 0, 0, 0
    while size < MAX_TOTAL_BYTES - 2 * MAX_FILE_BYTES // 8:
        text = PROVIDERS
        while len(text) < MAX_FILE_BYTES // 8:
            text += entry(number)
            number += 1
        put(directory, text, f"{part:03}.yaml")
        size, part = size + len(text), part + 1
    found = check_in_process(directory)
    assert found["faults"] == []
    assert found["entries"] == number > 80_000
    assert found["mib"] < 2 * MEMORY_MIB
    assert found["cpu_s"] < ALL_CPU_S
