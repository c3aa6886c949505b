"""Cyborg's names of devices are for a real Nova: together with our compute service the start is refused."""

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
def test_they_are_refused_where_our_own_compute_would_ask_for_others(tmp_path, services, ours):
    with pytest.raises(StartError) as refusal:
        build(tmp_path, services)
    said = str(refusal.value)
    where = f"{tmp_path / 'moorage.conf'}: [accelerator] names is cyborg, and [plane] services has {ours}: "
    assert said.startswith(where)
    assert "CUSTOM_ACCELERATOR_<TYPE>" in said
    assert "Remove names" in said


def test_they_are_for_the_accelerator_agent_of_a_host_of_another_compute(tmp_path):
    build(tmp_path, "accelerator-agent")
