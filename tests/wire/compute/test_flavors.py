"""Flavors, their extra specs and access lists."""


def test_a_flavor_is_created_shown_described_and_deleted(plane):
    body = {
        "flavor": {
            "OS-FLV-EXT-DATA:ephemeral": 0,
            "disk": 1,
            "name": "trc",
            "id": None,
            "swap": 0,
            "os-flavor-access:is_public": True,
            "ram": 64,
            "vcpus": 1,
        }
    }
    status, _, document = plane.admin("POST", "/v2.1/flavors", body, version="2.61")
    flavor = document["flavor"]
    assert (status, flavor["name"], flavor["ram"], len(flavor["id"])) == (200, "trc", 64, 36)
    path = f"/v2.1/flavors/{flavor['id']}"
    assert plane.send("GET", "/v2.1/flavors/trc")[0] == 404  # the command line first looks for this name as an id
    assert plane.admin("PUT", path, {"flavor": {"description": "d"}})[2]["flavor"]["description"] == "d"
    assert plane.admin("POST", "/v2.1/flavors", body)[0] == 409
    assert plane.send("DELETE", path)[0] == 403
    assert plane.admin("DELETE", path)[0] == 202
    assert plane.admin("DELETE", path)[0] == 404


def test_numbers_may_be_text_and_no_swap_is_empty_below_2_75(plane):
    body = {"flavor": {"name": "text", "id": 7, "ram": "64", "vcpus": "1", "disk": "0", "swap": ""}}
    flavor = plane.admin("POST", "/v2.1/flavors", body, version="2.1")[2]["flavor"]
    assert (flavor["id"], flavor["ram"], flavor["swap"]) == ("7", 64, "")
    assert plane.send("GET", "/v2.1/flavors/7", version="2.75")[2]["flavor"]["swap"] == 0
    for wrong in ({"vcpus": 0}, {"ram": -1}, {"name": ""}, {"surprise": 1}, {"description": "needs 2.55"}):
        refused = {"flavor": {"name": "x", "ram": 1, "vcpus": 1, "disk": 0} | wrong}
        assert plane.admin("POST", "/v2.1/flavors", refused, version="2.1")[0] == 400


def test_extra_specs_are_set_changed_and_removed(plane):
    plane.flavor("small")
    path = "/v2.1/flavors/small/os-extra_specs"
    assert plane.admin("POST", path, {"extra_specs": {"a:b": "1"}})[2] == {"extra_specs": {"a:b": "1"}}
    assert plane.admin("PUT", f"{path}/a:b", {"a:b": "2"})[2] == {"a:b": "2"}
    assert plane.send("GET", f"{path}/a:b")[2] == {"a:b": "2"}
    assert plane.admin("DELETE", f"{path}/a:b")[0] == 200
    assert plane.send("GET", f"{path}/a:b")[0] == 404
    assert plane.admin("DELETE", f"{path}/a:b")[0] == 404
    assert plane.admin("PUT", f"{path}/a:b", {"c": "2"})[0] == 400
    assert plane.send("POST", path, {"extra_specs": {"a:b": "1"}})[0] == 403


def test_a_flavor_may_require_one_of_several_traits(plane):
    """`trait:in:` has commas, which no other key may have."""
    plane.admin(
        "POST", "/v2.1/flavors", {"flavor": {"name": "either", "id": "either", "ram": 1, "vcpus": 1, "disk": 1}}
    )
    path = "/v2.1/flavors/either/os-extra_specs"
    specs = {"resources_A:CUSTOM_X": "1", "trait_A:in:CUSTOM_A,CUSTOM_B": "required"}
    assert plane.admin("POST", path, {"extra_specs": specs})[2] == {"extra_specs": specs}
    assert plane.admin("GET", f"{path}/trait_A:in:CUSTOM_A,CUSTOM_B")[2] == {"trait_A:in:CUSTOM_A,CUSTOM_B": "required"}
    for key in ("a:b,c", "trait:CUSTOM_A,CUSTOM_B", "trait:in:CUSTOM_A, CUSTOM_B", "trait:in:CUSTOM_A,NOBODYS"):
        assert plane.admin("POST", path, {"extra_specs": {key: "required"}})[0] == 400, key
    assert plane.admin("DELETE", f"{path}/trait_A:in:CUSTOM_A,CUSTOM_B")[0] == 200


def test_invalid_extra_specs_are_refused_when_the_flavor_is_created(plane):
    """S4: refused when the flavor is created, with the key and the remedy; nothing of the request is stored."""
    plane.flavor("small")
    path = "/v2.1/flavors/small/os-extra_specs"
    for version in ("2.1", "2.96"):
        body = {"extra_specs": {"resources:CUSTOM_A": "1", "resources:CUSTOM_B": "-1"}}
        status, _, document = plane.admin("POST", path, body, version=version)
        assert status == 400
        assert document["badRequest"]["message"].startswith("resources:CUSTOM_B=-1: an amount is a whole number")
    assert plane.send("GET", path)[2] == {"extra_specs": {}}


def test_private_flavors_are_visible_to_their_projects_only(plane):
    plane.flavor("secret", **{"os-flavor-access:is_public": False})
    plane.flavor("open")

    def names(query="", **options):
        return [flavor["name"] for flavor in plane.send("GET", f"/v2.1/flavors{query}", **options)[2]["flavors"]]

    admin = {"who": "root:admin", "roles": "admin"}
    assert names() == names("?is_public=None") == ["open"]
    assert names(**admin) == ["open"]
    assert names("?is_public=None", **admin) == ["open", "secret"]
    assert names("?is_public=False", **admin) == ["secret"]
    assert plane.send("GET", "/v2.1/flavors/secret")[0] == 404
    grant, revoke = ({key: {"tenant": "red"}} for key in ("addTenantAccess", "removeTenantAccess"))
    path = "/v2.1/flavors/secret"
    listed = {"flavor_access": [{"flavor_id": "secret", "tenant_id": "red"}]}
    assert plane.admin("POST", f"{path}/action", grant, version=None)[2] == listed
    assert plane.admin("GET", f"{path}/os-flavor-access")[2] == listed
    assert names() == names("/detail?is_public=True") == ["open", "secret"]
    assert plane.admin("POST", f"{path}/action", grant)[0] == 409
    assert plane.admin("POST", f"{path}/action", revoke)[2] == {"flavor_access": []}
    assert plane.admin("POST", f"{path}/action", revoke)[0] == 404
    assert plane.send("GET", path)[0] == 404
    assert plane.admin("GET", "/v2.1/flavors/open/os-flavor-access")[0] == 404
    assert plane.admin("POST", "/v2.1/flavors/open/action", grant)[0] == 409


def test_a_server_keeps_the_flavor_with_which_it_was_created(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    plane.admin("DELETE", "/v2.1/flavors/small")
    assert plane.show(server_id)["flavor"]["original_name"] == "small"


def test_flavors_are_listed_in_pages(plane):
    for name in ("a", "b", "c"):
        plane.flavor(name)
    first = plane.send("GET", "/v2.1/flavors?limit=2")[2]
    assert [flavor["id"] for flavor in first["flavors"]] == ["a", "b"]
    assert "marker=b" in first["flavors_links"][0]["href"]
    assert [row["id"] for row in plane.send("GET", "/v2.1/flavors?marker=b")[2]["flavors"]] == ["c"]
    assert plane.send("GET", "/v2.1/flavors?marker=nope")[0] == 400
