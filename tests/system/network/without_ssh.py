"""In place of Tempest's waits for SSH, because nobody can log in to a server whose host is simulated: a server that is
ACTIVE counts as one that answers. Imported in .venv-tempest.
"""

from unittest import mock

from tempest.api.compute.servers import test_attach_interfaces
from tempest.common import compute
from tempest.common.utils.linux import remote_client

_create = compute.create_test_server


def _create_active(clients, validatable=False, validation_resources=None, tenant_network=None, wait_until=None, **more):
    return _create(clients, tenant_network=tenant_network, wait_until="ACTIVE", **more)


def _nothing(*_arguments, **_named):
    """In the place of a wait for SSH."""


compute.create_test_server = _create_active
compute.wait_for_ssh_or_ping = _nothing
test_attach_interfaces.AttachInterfacesTestBase._wait_for_validation = _nothing
remote_client.RemoteClient = mock.MagicMock()
