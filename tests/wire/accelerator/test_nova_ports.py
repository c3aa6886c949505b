"""A port with a device profile: our answer has what Nova reads for the port's binding profile.

tests/nova/test_ports.py passes the same answer to Nova's own function.
"""

from tests.wire.accelerator.port_requests import binding_profiles, bound_port_requests


def test_a_bound_request_has_the_fields_that_nova_reads_for_a_port(tmp_path, wire, process, clock):
    arqs = bound_port_requests(tmp_path, wire, process.engine("accelerator"), clock)
    info = [arq["attach_handle_info"] for arq in arqs]
    made = [
        {
            "physical_network": one["physical_network"],
            "pci_slot": "{domain}:{bus}:{device}.{function}".format(**one),
            "arq_uuid": arq["uuid"],
        }
        for one, arq in zip(info, arqs, strict=True)
    ]
    assert made == binding_profiles(arqs)
