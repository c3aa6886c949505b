"""The driver's operations, observed inside the guest: a Debian kernel that reports them.

This file, `test_driver` (for a guest in its firmware), and `test_guests`, `test_moves` and `test_restarts` (through the
API) test each operation of the driver. Live migration is not tested, because this driver refuses it.
"""

import base64
import re

import pytest

from moorage.agent.model import DomainPowerState, PowerAction
from moorage.agent.virt.driver import Unsupported
from tests.system.libvirt.drivers import LINUX, A, linux, spec, wait_for_console
from tests.system.libvirt.servers import patiently

pytestmark = pytest.mark.slow


def test_a_guest_gets_a_password_shuts_down_for_a_reboot_and_panics_on_request(driver):
    driver.spawn(linux())
    wait_for_console(driver, "READY")
    driver.set_password(A, "secret & more")
    told = wait_for_console(driver, "PASSWORD")
    assert f'"username":"root","password":"{base64.b64encode(b"secret & more").decode()}"' in told
    assert driver.power(A, PowerAction.REBOOT) is DomainPowerState.RUNNING
    text = wait_for_console(driver, "BOOT 2")
    assert "OFF" in text.partition("BOOT 2")[0]  # it shut down when it was asked to
    driver.crash_dump(A)
    text = wait_for_console(driver, "BOOT 3")
    assert re.search(r"Kernel panic - not syncing: .*NMI", text)


def test_a_guest_reads_its_config_drive_and_a_rescue_system_reads_the_password_from_it(driver):
    files = {"openstack/latest/meta_data.json": b'{"uuid": "x"}', "openstack/latest/user_data": b"#!/bin/sh"}
    driver.spawn(linux(config_drive=files))
    text = wait_for_console(driver, "READY")
    assert 'CONFIG openstack/latest/meta_data.json: {"uuid": "x"}' in text
    assert "CONFIG openstack/latest/user_data: #!/bin/sh" in text
    driver.rescue(A, LINUX, "secret")
    text = wait_for_console(driver, '"admin_pass": "secret"')
    assert re.findall(r"DISK vd[a-z]", text) == ["DISK vda", "DISK vdb", "DISK vda", "DISK vdb", "DISK vdc"]
    assert "BOOT 2" not in text  # the rescue system has a disk of its own
    driver.unrescue(A)
    wait_for_console(driver, "BOOT 2")
    driver.rebuild(linux(), key="again", start=True)
    # A new disk was never booted before.
    patiently(lambda: (text := driver.console(A)).rindex("BOOT 1") > text.rindex("BOOT 2"))


def test_setting_a_password_fails_without_a_guest_agent(driver):
    driver.spawn(spec())
    with pytest.raises(Unsupported, match="agent"):
        driver.set_password(A, "secret")
