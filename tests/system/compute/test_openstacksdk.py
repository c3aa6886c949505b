"""The unmodified openstacksdk against our plane: the cloud layer and the compute proxy."""

import json

import pytest

from tests.ports import free_port
from tests.processes import sdk
from tests.system.planes import PlaneProcess

pytestmark = [pytest.mark.slow, pytest.mark.clients]

SCRIPT = """
import json
compute = cloud.compute
flavor = compute.create_flavor(name='sdk', ram=64, vcpus=1, disk=1)
compute.create_flavor_extra_specs(flavor, {'hw:cpu_policy': 'shared'})
image = cloud.create_image('sdk', data=b'tiny', disk_format='raw', container_format='bare', visibility='public')
group = compute.create_server_group(name='apart', policy='anti-affinity')
key = compute.create_keypair(name='key', public_key='KEY')
server = compute.create_server(name='sdk-1', flavor_id=flavor.id, image_id=image.id, networks='none', key_name='key',
                               metadata={'a': 'b'}, tags=['web'], scheduler_hints={'group': group.id})
server = compute.wait_for_server(server, wait=60)
compute.set_server_metadata(server, c='d')
compute.add_tag_to_server(server, 'more')
compute.stop_server(server)
compute.wait_for_server(server, status='SHUTOFF', wait=60)
compute.start_server(server)
server = compute.wait_for_server(server, wait=60)
said = {
    'found': compute.find_server('sdk-1').id == server.id,
    'listed': [one.name for one in compute.servers(tags='web')],
    'server': [server.status, server.metadata, sorted(server.tags), server.key_name, server.flavor.name],
    'group': [compute.get_server_group(group.id).member_ids == [server.id], server.server_groups == [group.id]],
    'hypervisor': [one.name for one in compute.hypervisors(details=True)],
    'service': [one.state for one in compute.services()],
    'zones': [one.name for one in compute.availability_zones()],
    'actions': sorted({one.action for one in compute.server_actions(server)}),
    'quota': compute.get_quota_set(cloud.current_project_id, usage=True).usage['instances'],
    'limits': compute.get_limits().absolute.instances_used,
    'console': isinstance(compute.get_server_console_output(server)['output'], str),
    'migrations': len(list(compute.migrations())),
}
compute.delete_server(server)
compute.wait_for_delete(server, wait=60)
said['gone'] = compute.find_server('sdk-1') is None
compute.delete_keypair(key)
compute.delete_server_group(group)
compute.delete_flavor(flavor)
print(json.dumps(said))
"""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINq58IlCWeEZskehFJsXerpeqXANAIKO2SOIJWaMJ2VT"


def test_openstacksdk_manages_a_server_and_the_objects_that_it_uses(tmp_path):
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
        said = json.loads(sdk(variables, SCRIPT.replace("KEY'", f"{KEY}'")))
    assert said == {
        "found": True,
        "listed": ["sdk-1"],
        "server": ["ACTIVE", {"a": "b", "c": "d"}, ["more", "web"], "key", "sdk"],
        "group": [True, True],
        "hypervisor": ["compute-1"],
        "service": ["up"],
        "zones": ["nova"],
        "actions": ["create", "start", "stop"],
        "quota": 1,
        "limits": 1,
        "console": True,
        "migrations": 0,
        "gone": True,
    }
