"""Real guests: a private libvirtd, and a plane whose host runs its servers on it. All tests share one of each."""

import functools
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.servers import ServerMissing, program
from tests.system.libvirt import drivers, guest, host, login_guest, namespaces
from tests.system.planes import PlaneClients, PlaneProcess, write_config


@pytest.fixture(scope="session")
def kernel() -> Path:
    if why := host.missing() or guest.missing():
        pytest.skip(f"no guests here: {why}")
    try:
        return guest.kernel()
    except ServerMissing as error:
        pytest.skip(f"no guests here: {error}")


@pytest.fixture(scope="session")
def directory():
    with host.short_directory() as path:
        yield path


@pytest.fixture(scope="module")
def both():
    """The namespaces of a host and of a person's machine."""
    if why := namespaces.missing():
        pytest.skip(f"no networks here: {why}")
    with namespaces.two_namespaces() as both:
        yield both


@pytest.fixture(scope="module")
def bridged_libvirtd(kernel, both):
    """A host whose guests can be attached to `namespaces.BRIDGE`."""
    try:
        programs, filters = host.network_programs()
    except ServerMissing as error:
        pytest.skip(f"no networks here: {error}")
    with (
        host.short_directory() as path,
        host.LibvirtHost(path, namespace=both.host, programs=programs, filters=filters) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def initrd(kernel):
    if program("ssh") is None:
        pytest.skip("no login here: openssh-client is not installed")
    try:
        return login_guest.initial_file_system()
    except ServerMissing as error:
        pytest.skip(f"no login here: {error}")


@pytest.fixture(scope="module")
def make_image(lab, initrd, tmp_path_factory):
    """A function that creates images for `lab`: {property: value}, and additional kernel arguments. People can log in."""
    clients = lab.clients
    system = {
        "kernel_id": clients.create_image(guest.kernel().read_bytes(), disk_format="aki", container_format="aki"),
        "ramdisk_id": clients.create_image(initrd, disk_format="ari", container_format="ari"),
    }
    disk = guest.empty_disk(tmp_path_factory.mktemp("disk"))
    clients.create_flavor("tiny", ram_mb=256)

    def make(*words: str, **properties: str) -> str:
        cmdline = " ".join([guest.CMDLINE, *words])
        return clients.create_image(disk, disk_format="qcow2", os_command_line=cmdline, **system, **properties)

    return make


@pytest.fixture(scope="session")
def libvirtd(kernel, directory):
    (directory / "libvirt").mkdir()
    with host.small_file_system(directory / "libvirt" / "small"), host.LibvirtHost(directory / "libvirt") as running:
        yield running


@pytest.fixture(scope="session")
def driver_images(kernel, tmp_path_factory):
    return drivers.images(kernel, tmp_path_factory.mktemp("images"))


@pytest.fixture
def make(libvirtd, driver_images):
    """A function that creates drivers on one host; each stands for one more start of the agent."""
    return functools.partial(drivers.driver_on, libvirtd, driver_images, libvirtd.directory / "driver")


@pytest.fixture
def driver(make):
    driver = make()
    yield driver
    for uuid in (drivers.A, drivers.B):
        driver.destroy(uuid)


@pytest.fixture
def bridged_make(bridged_libvirtd, driver_images):
    """Like `make`, on `bridged_libvirtd`."""
    directory = bridged_libvirtd.directory / "driver"
    return functools.partial(drivers.driver_on, bridged_libvirtd, driver_images, directory)


@pytest.fixture
def bridged_driver(bridged_make):
    driver = bridged_make()
    yield driver
    driver.destroy(drivers.A)


@pytest.fixture(scope="session")
def plane(libvirtd, directory):
    config = write_config(
        directory / "plane",
        plane={"log_file": ""},  # tests read the log from the standard error output
        server={"port": free_port()},
        agent={
            "virt_driver": "libvirt",
            "host": "metal-1",
            "domain_report_period_s": 1.0,
            "resume_guests_state_on_host_boot": True,
        },
        libvirt={
            "uri": libvirtd.uri,
            # Below the daemon's directory: guests are found by this path, and ended when the daemon's directory is
            # removed.
            "instances_path": str(libvirtd.directory / "instances"),
            "virt_type": "qemu",
            "devices": "emulated",
            "shutdown_timeout_s": 20.0,
            "reserved_host_memory_mb": 0,
        },
    )
    with PlaneProcess(config.source).start() as plane:
        yield plane


@pytest.fixture(scope="session")
def clients(plane: PlaneProcess) -> PlaneClients:
    return plane.clients()


@pytest.fixture(scope="session")
def images(clients, kernel, tmp_path_factory):
    """A function that creates images: an empty disk that boots Debian's kernel, with additional kernel arguments."""
    initrd = guest.initial_file_system()
    parts = {
        "kernel_id": clients.create_image(kernel.read_bytes(), disk_format="aki", container_format="aki", name="k"),
        "ramdisk_id": clients.create_image(initrd, disk_format="ari", container_format="ari", name="r"),
    }
    disk = guest.empty_disk(tmp_path_factory.mktemp("disk"))

    def make(*words: str) -> str:
        cmdline = " ".join([guest.CMDLINE, *words])
        return clients.create_image(disk, disk_format="qcow2", os_command_line=cmdline, **parts)

    return make


@pytest.fixture(scope="session")
def image(images) -> str:
    return images()


@pytest.fixture(scope="session")
def firmware(clients) -> str:
    """An image that boots nothing: its guest stays in its firmware, and ignores the power button."""
    return clients.create_image(bytes(1 << 16))


@pytest.fixture(scope="session")
def flavor(clients) -> str:
    return clients.create_flavor("small", ram_mb=192, swap_mb=8)
