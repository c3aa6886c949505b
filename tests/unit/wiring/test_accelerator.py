"""The accelerator service uses the configured image service, and starts without one."""

import pytest

from moorage.wiring.plane import build_plane
from tests.system.planes import write_config


@pytest.mark.parametrize("others", [("compute",), ("compute", "image")])
def test_the_accelerator_service_can_be_built_without_an_image_service(tmp_path, others):
    endpoints = dict.fromkeys(others, "http://127.0.0.1:9/")
    config = write_config(tmp_path, plane={"services": "accelerator"}, identity={"mode": "none"}, endpoints=endpoints)
    build_plane(config)
