"""``openstack image ...`` and openstacksdk, unmodified, against our image service over a socket."""

import hashlib
import json
import os
import socket
import subprocess
import threading
import time

import httpx
import pytest

from tests.processes import client_server, cloud, openstack, sdk

pytestmark = [pytest.mark.slow, pytest.mark.clients]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with cloud(tmp_path_factory.mktemp("cloud") / "state") as served:
        yield served


def test_a_bitstream_is_uploaded_shown_and_deleted_by_the_stock_client(served, tmp_path):
    data = bytes(range(256)) * 20_000
    upload, saved = tmp_path / "gzip.bit", tmp_path / "saved.bit"
    upload.write_bytes(data)
    create, listed, none, show, save, change, protected, changed, unprotect, delete, gone = openstack(
        served.variables("demo", "demo"),
        ["image", "create", "gzip", "--file", str(upload), "--property", "accel:function_id=f1", "--property",
         "region_uuid=r1", "--tag", "FPGA", "--private", "-f", "json"],
        ["image", "list", "--property", "accel:function_id=f1", "--property", "region_uuid=r1", "-f", "json"],
        ["image", "list", "--property", "accel:function_id=other", "-f", "json"],
        ["image", "show", "gzip", "-f", "json"],
        ["image", "save", "gzip", "--file", str(saved)],
        ["image", "set", "gzip", "--name", "gzip-2", "--property", "region_uuid=r2", "--tag", "second", "--protected"],
        ["image", "delete", "gzip-2"],
        ["image", "show", "gzip-2", "-f", "json"],
        ["image", "set", "gzip-2", "--unprotected"],
        ["image", "delete", "gzip-2"],
        ["image", "list", "-f", "json"],
    )  # fmt: skip
    assert create.document["status"] == "active"
    assert create.document["size"] == len(data)
    assert [row["Name"] for row in listed.document] == ["gzip"]
    assert none.document == []
    assert show.document["properties"]["os_hash_value"] == hashlib.sha512(data).hexdigest()
    assert show.document["properties"]["accel:function_id"] == "f1"
    assert show.document["visibility"] == "private"
    assert show.document["tags"] == ["FPGA"]
    assert (save.status, saved.read_bytes()) == (0, data)
    assert change.status == 0, change.err
    assert protected.status != 0
    assert "is protected and cannot be deleted" in protected.err
    assert changed.document["name"] == "gzip-2"
    assert changed.document["properties"]["region_uuid"] == "r2"
    assert sorted(changed.document["tags"]) == ["FPGA", "second"]
    assert unprotect.status == delete.status == 0
    assert "gzip-2" not in {row["Name"] for row in gone.document}


def test_projects_see_only_their_own_images_and_only_admins_make_them_public(served, tmp_path):
    upload = tmp_path / "data"
    upload.write_bytes(b"data")
    create, publish = openstack(
        served.variables("demo", "demo"),
        ["image", "create", "mine", "--file", str(upload), "-f", "json"],
        ["image", "set", "mine", "--public"],
    )
    assert create.document["status"] == "active"
    assert publish.status != 0
    assert "403" in publish.err
    seen, public = openstack(
        served.variables("admin", "admin"),
        ["image", "list", "-f", "json"],
        ["image", "create", "ours", "--file", str(upload), "--public", "-f", "json"],
    )
    assert "mine" in {row["Name"] for row in seen.document}
    assert public.document["visibility"] == "public"
    (both,) = openstack(served.variables("demo", "demo"), ["image", "list", "-f", "json"])
    assert {"mine", "ours"} <= {row["Name"] for row in both.document}


DATA = bytes(range(256)) * 20_000


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("openstackclient.shell", "image create piped --disk-format raw -f json"),
        ("glanceclient.shell", "image-create --name piped --disk-format raw --container-format bare"),
    ],
)
def test_an_upload_from_a_pipe_needs_no_length(served, tmp_path, shell, words):
    program = client_server().executable(shell.partition(".")[0], f"{shell}:main")
    done = subprocess.run(
        [program, *words.split()],
        input=DATA,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **served.variables("demo", "demo")},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    saved = tmp_path / "saved"
    show, _, delete = openstack(
        served.variables("demo", "demo"),
        ["image", "show", "piped", "-f", "json"],
        ["image", "save", "piped", "--file", str(saved)],
        ["image", "delete", "piped"],
    )
    assert (show.document["status"], show.document["size"], delete.status) == ("active", len(DATA), 0)
    assert show.document["properties"]["os_hash_value"] == hashlib.sha512(DATA).hexdigest()
    assert saved.read_bytes() == DATA


def test_curl_uploads_what_it_reads_from_a_pipe(http):
    image = queued(http)
    done = subprocess.run(
        ["curl", "--silent", "--show-error", "--noproxy", "*", "--upload-file", "-", "--write-out", "%{http_code}",
         "--header", f"X-Auth-Token: {http.headers['X-Auth-Token']}",
         "--header", "Content-Type: application/octet-stream", f"{http.base_url}v2/images/{image}/file"],
        input=DATA, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (b"204", b"")
    assert http.get(f"/v2/images/{image}").json()["size"] == len(DATA)


def test_the_glance_client_shares_an_image_and_openstacksdk_accepts_it(served, http):
    image = queued(http)
    (create, listed) = openstack(
        served.variables("demo", "demo"),
        ["member-create", image, "red"],
        ["member-list", "--image-id", image],
        shell="glanceclient.shell",
    )
    assert (create.status, create.err) == (0, "")
    assert (f"| {image} | red       | pending |" in create.out, create.out == listed.out) == (True, True)
    said = sdk(
        served.variables("admin", "admin"),
        f"""
import json
image, project = '{image}', cloud.current_project_id
cloud.image.add_member(image, member=project)
cloud.image.update_member(project, image, status='accepted')
print(json.dumps([
    [member.status for member in cloud.image.members(image) if member.member_id == project],
    cloud.image.get_member(project, image).status,
    sorted(cloud.session.get('/v2/schemas/member', endpoint_filter={{'service_type': 'image'}}).json()['properties']),
]))
""",
    )
    keys = ["created_at", "image_id", "member_id", "schema", "status", "updated_at"]
    assert json.loads(said) == [["accepted"], "accepted", keys]
    (delete,) = openstack(served.variables("demo", "demo"), ["member-delete", image, "red"], shell="glanceclient.shell")
    assert (delete.status, delete.err) == (0, "")


def test_openstacksdk_pages_filters_and_streams(served):
    said = sdk(
        served.variables("moorage", "service"),
        """
import hashlib, json
data = b'bits' * 300_000
image = cloud.create_image('sdk', data=data, disk_format='raw', container_format='bare', tags=['FPGA'],
                           meta={'function_uuid': 'u1'})
more = [cloud.image.create_image(f'p{number}', container='bare', allow_duplicates=True) for number in range(5)]
response = cloud.image.download_image(image.id, stream=True)
print(json.dumps({
    'status': cloud.image.get_image(image.id).status,
    'pages': len([row for row in cloud.image.images(limit=2, owner=image.owner)]),
    'found': [row.name for row in cloud.image.images(function_uuid='u1', tag='FPGA')],
    'same': hashlib.sha512(b''.join(response.iter_content(65536))).hexdigest() == hashlib.sha512(data).hexdigest(),
    'schema': cloud.image.get_image_schema().properties['os_hash_value']['type'],
}))
""",
    )
    answer = json.loads(said)
    assert answer == {
        "status": "active",
        "pages": 6,
        "found": ["sdk"],
        "same": True,
        "schema": ["null", "string"],
    }


@pytest.fixture
def http(served):
    body = {
        "auth": {
            "identity": {
                "methods": ["password"],
                "password": {
                    "user": {"name": "demo", "domain": {"id": "default"}, "password": served.password("demo")}
                },
            }
        }
    }
    token = httpx.post(f"{served.auth_url}/v3/auth/tokens", json=body, trust_env=False).headers["x-subject-token"]
    with httpx.Client(base_url=f"{served.url}/image", headers={"X-Auth-Token": token}, trust_env=False) as http:
        yield http


def queued(http):
    body = {"disk_format": "raw", "container_format": "bare"}
    return http.post("/v2/images", json=body).json()["id"]


def test_an_interrupted_upload_leaves_no_image_data(http):
    """An upload that ends early must not look like a complete one."""
    image = queued(http)
    head = (
        f"PUT /image/v2/images/{image}/file HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {http.headers['X-Auth-Token']}\r\n"
        "Content-Type: application/octet-stream\r\n"
    )
    chunked = "Transfer-Encoding: chunked\r\n"
    for length in ("Content-Length: 100000\r\n", chunked, f"{chunked}X-OpenStack-Image-Size: 100000\r\n"):
        with socket.create_connection((http.base_url.host, http.base_url.port)) as sender:
            sender.sendall(f"{head}{length}\r\n5\r\nhello\r\n".encode())
            wait_for(http, image, "saving")
        wait_for(http, image, "queued")
        assert http.get(f"/v2/images/{image}/file").status_code == 204


def wait_for(http, image, status):
    deadline = time.monotonic() + 10
    while (now := http.get(f"/v2/images/{image}").json()["status"]) != status:
        assert time.monotonic() < deadline, f"the image stays {now}"
        time.sleep(0.02)


def test_a_refused_upload_gets_its_answer_before_its_data_is_read(http):
    image = queued(http)
    headers = {"Content-Type": "application/octet-stream"}
    assert http.put(f"/v2/images/{image}/file", content=b"first", headers=headers).status_code == 204
    assert http.put(f"/v2/images/{image}/file", content=b"x" * 20_000_000, headers=headers).status_code == 409
    assert http.get(f"/v2/images/{image}/file").content == b"first"


def test_of_two_simultaneous_uploads_one_is_stored_completely(http):
    image = queued(http)
    headers = {"Content-Type": "application/octet-stream"}
    statuses = []

    def send(letter: bytes) -> None:
        answer = httpx.put(
            f"{http.base_url}/v2/images/{image}/file",
            content=letter * 5_000_000,
            headers=headers | {"X-Auth-Token": http.headers["X-Auth-Token"]},
            trust_env=False,
        )
        statuses.append(answer.status_code)

    threads = [threading.Thread(target=send, args=(letter,)) for letter in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [204, 409]
    assert len(set(http.get(f"/v2/images/{image}/file").content)) == 1
