"""The option for Cyborg's resource classes requires a real Nova; with our compute service it is a start error."""

import pytest

from moorage.core.errors import StartError
from moorage.wiring.plane import build_plane
from tests.system.planes import write_config


def build(directory, services):
    endpoints = dict.fromkeys(("placement", "accelerator", "image"), "http://127.0.0.1:9/")
    config = write_config(
        directory,
        plane={"services": services},
        identity={"mode": "none"},
        endpoints=endpoints,
        accelerator={"names": "cyborg"},
    )
    build_plane(config)


@pytest.mark.parametrize(("services", "ours"), [("agent", "agent"), ("compute,accelerator-agent", "compute")])
def test_the_resource_classes_of_cyborg_with_our_compute_service_are_a_start_error(tmp_path, services, ours):
    with pytest.raises(StartError) as refusal:
        build(tmp_path, services)
    said = str(refusal.value)
    where = f"{tmp_path / 'moorage.conf'}: [accelerator] names is cyborg, and [plane] services has {ours}: "
    assert said.startswith(where)
    assert "CUSTOM_ACCELERATOR_<TYPE>" in said
    assert "Remove names" in said


def test_the_resource_classes_of_cyborg_are_accepted_for_a_separate_accelerator_agent(tmp_path):
    build(tmp_path, "accelerator-agent")
