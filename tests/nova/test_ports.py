"""A port with a device profile: Nova's own function makes the port's binding profile from our accelerator request."""

import json
import subprocess

from tests.processes import python_of
from tests.wire.accelerator.conftest import RecordedHints, Wire, process_in
from tests.wire.accelerator.port_requests import binding_profiles, bound_port_requests

#: Reads requests, prints the part of the port's binding profile that Nova makes of each.
_NOVA = """
import json, sys
from nova.accelerator.cyborg import get_arq_pci_device_profile
json.dump([get_arq_pci_device_profile(arq) for arq in json.load(sys.stdin)], sys.stdout)
"""


def test_nova_makes_the_binding_profile_of_a_port_from_our_request(tmp_path, clock, ids):
    with process_in(tmp_path / "service", RecordedHints(), clock=clock, ids=ids) as process:
        wire = Wire(process.transport("/accelerator"))
        arqs = bound_port_requests(tmp_path, wire, process.engine("accelerator"), clock)
    nova = subprocess.run(
        [python_of(".venv-nova"), "-W", "ignore", "-c", _NOVA],
        input=json.dumps(arqs), check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert nova.returncode == 0, nova.stderr[-2000:]
    assert json.loads(nova.stdout) == binding_profiles(arqs)
