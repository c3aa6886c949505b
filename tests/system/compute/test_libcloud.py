"""The unmodified Apache Libcloud against our plane: it reads images from the compute service, imports no key, and waits
until a server has an address.
"""

import json

import pytest

from tests.ports import free_port
from tests.processes import sdk
from tests.system.planes import PlaneProcess, write_config

pytestmark = [pytest.mark.slow, pytest.mark.clients]

#: `cloud` is a connection of openstacksdk, which creates what Libcloud then finds.
SCRIPT = """
import json, os
from libcloud.compute.providers import get_driver
from libcloud.compute.types import Provider

cloud.compute.create_flavor(name='small', ram=64, vcpus=1, disk=1)
cloud.create_image('tiny', data=b'tiny', disk_format='raw', container_format='bare', wait=True, note='a')

def connect(**more):
    return get_driver(Provider.OPENSTACK)(
        os.environ['OS_USERNAME'], os.environ['OS_PASSWORD'], ex_force_auth_url=os.environ['OS_AUTH_URL'],
        ex_force_auth_version='3.x_password', ex_tenant_name=os.environ['OS_PROJECT_NAME'], **more,
    )

driver = connect(api_version='2.2')
older = connect()  # asks only the compute service
image = next(image for image in older.list_images() if image.name == 'tiny')
size = next(size for size in driver.list_sizes() if size.name == 'small')
pair = driver.create_key_pair('made')
(lab,) = driver.ex_list_networks()
node = driver.create_node(name='by-libcloud', image=image, size=size, ex_keyname='made', networks=[lab])
((running, addresses),) = driver.wait_until_running([node], timeout=60)
server = cloud.compute.get_server(node.id)
said = {
    'image': [image.extra['status'], image.extra['metadata']['note'], older.get_image(image.id).id == image.id, [one.id for one in driver.list_images()] == [image.id]],
    'waited': [running.id == node.id, addresses, running.public_ips],
    'network': [lab.name, len(driver.ex_list_subnets()), [one.extra['device_owner'] for one in driver.ex_list_ports()]],
    'node': [(one.name, one.state) for one in driver.list_nodes()],
    'key': [pair.private_key.splitlines()[0], server.key_name, [one.name for one in driver.list_key_pairs()]],
    'deleted': driver.destroy_node(node),
}
cloud.compute.wait_for_delete(server, wait=60)
said['left'] = len(driver.list_nodes())
said['key deleted'] = driver.delete_key_pair(pair)
print(json.dumps(said))
"""


def test_libcloud_boots_a_server_on_a_network_and_with_a_generated_key_and_waits_for_its_address(tmp_path):
    config = write_config(
        tmp_path / "state",
        server={"port": free_port()},
    )
    with PlaneProcess(config.source) as plane:
        kept = json.loads((plane.state / "credentials.json").read_text())["admin"]
        variables = {
            "OS_AUTH_URL": f"{plane.url}/identity",
            "OS_USERNAME": "admin",
            "OS_PASSWORD": kept["password"],
            "OS_PROJECT_NAME": kept["project"],
            "OS_USER_DOMAIN_ID": "default",
            "OS_PROJECT_DOMAIN_ID": "default",
        }
        said = json.loads(sdk(variables, SCRIPT))
    assert said == {
        "image": ["ACTIVE", "a", True, True],
        "waited": [True, ["192.0.2.2"], ["192.0.2.2"]],
        "network": ["lab", 1, ["compute:nova"]],
        "node": [["by-libcloud", "running"]],
        "key": ["-----BEGIN RSA PRIVATE KEY-----", "made", ["made"]],
        "deleted": True,
        "left": 0,
        "key deleted": True,
    }
