"""A host that is configured for libvirt, but lacks libvirt's bindings."""

import importlib
import sys

import pytest

from moorage.core.errors import StartError


def test_the_start_error_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "libvirt", None)
    for name in [name for name in sys.modules if name.startswith("moorage.agent.virt.libvirt_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "moorage.wiring.libvirt_host", raising=False)
    with pytest.raises(
        StartError, match=r"Python has no module libvirt; install the extra: pip install 'moorage\[libvirt\]'"
    ):
        importlib.import_module("moorage.wiring.libvirt_host")
