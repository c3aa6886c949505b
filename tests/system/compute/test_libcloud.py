"""The unmodified Apache Libcloud against our plane: it reads images from the compute service and imports no key."""

import json

import pytest

from tests.ports import free_port
from tests.processes import sdk
from tests.system.planes import PlaneProcess

pytestmark = [pytest.mark.slow, pytest.mark.clients]

#: `cloud` is a connection of openstacksdk, which creates what Libcloud then finds.
SCRIPT = """
import json, os
from libcloud.compute.providers import get_driver
from libcloud.compute.types import Provider

cloud.compute.create_flavor(name='small', ram=64, vcpus=1, disk=1)
cloud.create_image('tiny', data=b'tiny', disk_format='raw', container_format='bare', wait=True, note='a')
driver = get_driver(Provider.OPENSTACK)(
    os.environ['OS_USERNAME'], os.environ['OS_PASSWORD'], ex_force_auth_url=os.environ['OS_AUTH_URL'],
    ex_force_auth_version='3.x_password', ex_tenant_name=os.environ['OS_PROJECT_NAME'],
)
image = next(image for image in driver.list_images() if image.name == 'tiny')
size = next(size for size in driver.list_sizes() if size.name == 'small')
pair = driver.create_key_pair('made')
node = driver.create_node(name='by-libcloud', image=image, size=size, ex_keyname='made', networks=[])
server = cloud.compute.wait_for_server(cloud.compute.get_server(node.id), wait=60)
said = {
    'image': [image.extra['status'], image.extra['metadata']['note'], driver.get_image(image.id).id == image.id],
    'node': [(one.name, one.state) for one in driver.list_nodes()],
    'key': [pair.private_key.splitlines()[0], server.key_name, [one.name for one in driver.list_key_pairs()]],
    'deleted': driver.destroy_node(node),
}
cloud.compute.wait_for_delete(server, wait=60)
said['left'] = len(driver.list_nodes())
said['key deleted'] = driver.delete_key_pair(pair)
print(json.dumps(said))
"""


def test_libcloud_lists_images_and_boots_and_deletes_a_server_with_a_generated_key(tmp_path):
    with PlaneProcess(tmp_path / "state" / "moorage.conf", "--port", str(free_port())) as plane:
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
        "image": ["ACTIVE", "a", True],
        "node": [["by-libcloud", "running"]],
        "key": ["-----BEGIN RSA PRIVATE KEY-----", "made", ["made"]],
        "deleted": True,
        "left": 0,
        "key deleted": True,
    }
