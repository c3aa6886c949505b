"""Answers have the format of OpenStack Nova 34 for the same requests: every name, and the type of every value.

`recorded.json` has path, version, status and format of each answer, at 2.1 and at Nova's newest version; if that is
newer than ours, for fields that have not changed since.
"""

import json
from pathlib import Path

import pytest

ROWS = json.loads((Path(__file__).parent / "recorded.json").read_text())
KINDS = {bool: "bool", int: "number", float: "number", str: "text"}


@pytest.fixture
def there(plane, host):
    """Creates the objects of the recorded requests; returns {placeholder in a path: id}."""
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    plane.clock.sleep(60)
    actions = plane.send("GET", f"/v2.1/servers/{server_id}/os-instance-actions")[2]["instanceActions"]
    return {"SERVER": server_id, "FLAVOR": "small", "PROJECT": "red", "REQUEST": actions[0]["request_id"]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['path']} {row['version']}")
def test_an_answer_has_the_format_of_novas(plane, there, row):
    path = "/v2.1" + "/".join(there.get(step, step) for step in row["path"].split("/"))
    roles = {"who": "root:red", "roles": "admin"}
    status, headers, body = plane.send("GET", path, version=row["version"], **roles)
    assert status == row["status"]
    assert headers["openstack-api-version"] == f"compute {row['version']}"
    if status != 200:
        assert list(body) == [row["body"]]
        return
    assert list(differences(row["body"], body)) == []


def differences(shape, value, where="body"):
    """The differences of `value` from `shape`; null in a shape matches any value, and an empty list any list."""
    if shape is None or value is None:
        return
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            yield f"{where}: no object"
            return
        if shape and set(shape) != set(value):
            yield f"{where}: lacks {sorted(set(shape) - set(value))}, has {sorted(set(value) - set(shape))}"
        for name in shape.keys() & value.keys():
            yield from differences(shape[name], value[name], f"{where}.{name}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{where}: no list"
        elif shape and value:
            yield from differences(shape[0], value[0], f"{where}[0]")
    elif KINDS.get(type(value)) != shape:
        yield f"{where}: {value!r} is no {shape}"
