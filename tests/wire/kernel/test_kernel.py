"""The HTTP kernel, with the same results in process and over a socket."""

import json
import re
import threading

import pytest

from moorage.telemetry.logs import global_request, request_context
from moorage.wire.forwarded import TrustedProxies
from moorage.wire.http import Response, Route
from moorage.wire.transports import InProcessTransport, outgoing_request_id
from tests.wire.kernel.harbour import MAX_JSON_BYTES, application, application_of

TOKEN = {"x-auth-token": "ada/member"}
ADMIN = {"x-auth-token": "eve/admin"}
JSON = {"content-type": "application/json"}


def version(text):
    return {"openstack-api-version": text}


@pytest.fixture
def send(transport):
    """``send(method, path below /harbour, headers, body)`` -> (status, decoded body or None, headers)."""

    def send(method, path, headers=TOKEN, body=None):
        answer = transport.send(method, "/harbour" + path, headers, body)
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return (
            answer.status,
            json.loads(answer.body) if is_json and answer.body else answer.body or None,
            answer.headers,
        )

    return send


# ------------------------------------------------------------------------------------------------- the route table


def test_placeholders_of_the_path_reach_the_handler(send):
    status, body, headers = send("GET", "/boats/ada")
    assert (status, body["name"], body["caller"], body["path"]) == (200, "ada", "ada", "/boats/ada")
    assert headers["x-boat"] == "ada"


@pytest.mark.parametrize(
    ("sent", "seen"), [("a%20b", "a b"), ("gr%C3%BCn", "grün"), ("a%3Fb", "a?b"), ("a+b", "a+b"), ("%25", "%")]
)
def test_paths_are_decoded_once(send, sent, seen):
    assert send("GET", f"/boats/{sent}")[1]["name"] == seen


def test_query_parameters_keep_their_order_and_repetitions(send):
    query = "b=2&a=%C3%BC&b=1&empty=&c=x%2By+z"
    assert send("GET", f"/boats/ada?{query}")[1]["query"] == [
        ["b", "2"], ["a", "ü"], ["b", "1"], ["empty", ""], ["c", "x+y z"],
    ]  # fmt: skip


def test_the_root_answers_with_and_without_a_slash_and_without_credentials(send):
    for path in ("", "/"):
        status, body, _ = send("GET", path, {})
        assert status == 200
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/harbour", body["base_url"])


FORWARDED = [
    ({"x-forwarded-proto": "https", "x-forwarded-host": "cloud.example"}, r"https://cloud\.example"),
    ({"forwarded": "proto=https;host=cloud.example"}, r"https://cloud\.example"),
    ({"forwarded": 'For="[::1]";Proto=HTTPS; Host="cloud.example:8443"'}, r"https://cloud\.example:8443"),
    ({"x-forwarded-proto": "https"}, r"https://127\.0\.0\.1:\d+"),
    ({"x-forwarded-host": "cloud.example"}, r"http://cloud\.example"),
    # The client's values come before the proxy's.
    ({"x-forwarded-proto": "http, https", "x-forwarded-host": "evil.example,cloud.example"}, r"https://cloud\.example"),
    ({"forwarded": "host=evil.example;proto=http, host=cloud.example;proto=https"}, r"https://cloud\.example"),
    ({"forwarded": 'host="a,host=evil.example", host=cloud.example'}, r"http://cloud\.example"),
    # Values that are no scheme or host are ignored.
    ({"x-forwarded-proto": "javascript", "x-forwarded-host": "a/b"}, r"http://127\.0\.0\.1:\d+"),
    ({"forwarded": 'host="cloud.example'}, r"http://127\.0\.0\.1:\d+"),
    ({"forwarded": "host"}, r"http://127\.0\.0\.1:\d+"),
]


@pytest.mark.parametrize(("headers", "base_url"), FORWARDED)
def test_the_base_url_is_read_from_the_headers_of_a_trusted_proxy(transport, headers, base_url):
    answer = json.loads(transport.send("GET", "/behind/", headers).body)
    assert re.fullmatch(f"{base_url}/behind", answer["base_url"])


@pytest.mark.parametrize("headers", [headers for headers, _ in FORWARDED])
def test_headers_of_other_clients_do_not_change_the_base_url(send, headers):
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/harbour", send("GET", "/", headers)[1]["base_url"])


@pytest.mark.parametrize(
    ("address", "is_believed"),
    [
        ("10.1.2.3", True),
        ("10.2.0.0", False),
        ("::ffff:10.1.2.3", True),
        ("fd00::1", True),
        ("fe80::1%eth0", False),
        ("", False),
    ],
)
def test_a_proxy_is_trusted_by_its_address(address, is_believed):
    assert TrustedProxies(["10.1.0.0/16", "fd00::/8"]).trusts({"REMOTE_ADDR": address}) is is_believed


@pytest.mark.parametrize("text", ["10.0.0.1/8", "proxy.example", "10.0.0.0/33"])
def test_an_invalid_network_is_refused(text):
    with pytest.raises(ValueError):
        TrustedProxies([text])


def test_an_answer_without_a_body_has_no_content_type(send):
    status, body, headers = send("DELETE", "/boats/ada", ADMIN)
    assert (status, body) == (204, None)
    assert "content-type" not in headers


def test_an_answer_of_bytes_is_sent_unchanged(send):
    status, body, headers = send("GET", "/raw")
    assert (status, body, headers["content-type"]) == (200, b"\x00\xff", "application/octet-stream")


# ----------------------------------------------------------------------------------------------- refusals, one by one


def test_an_unknown_path_is_404(send):
    status, body, _ = send("GET", "/nowhere")
    assert (status, body["message"], body["title"]) == (404, "The resource could not be found.", "Not Found")


def test_a_trailing_slash_is_another_path(send):
    assert send("GET", "/boats/ada/")[0] == 404


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "HEAD", "OPTIONS", "TRACE"])
def test_another_method_is_405_and_names_those_that_work(send, method):
    status, _, headers = send(method, "/boats/ada")
    assert (status, headers["allow"]) == (405, "DELETE, GET")


def test_a_request_without_credentials_is_401(send):
    status, body, _ = send("GET", "/boats/ada", {})
    assert (status, body["code"]) == (401, "moorage.unauthorized")


def test_an_unavailable_identity_service_is_503(send):
    assert send("GET", "/boats/ada", {"x-auth-token": "slow/"})[0] == 503


def test_a_refused_policy_rule_is_403(send):
    status, body, _ = send("DELETE", "/boats/ada")
    assert (status, body["message"]) == (403, "Policy doesn't allow boat:sink to be performed.")


def test_an_undefined_policy_rule_allows_nobody(send):
    assert send("GET", "/unnamed-rule", ADMIN)[0] == 403


def test_a_handler_can_evaluate_a_policy_rule(send):
    assert send("GET", "/boats/ada")[1]["may_sink"] is False
    assert send("GET", "/boats/ada", ADMIN)[1]["may_sink"] is True


@pytest.mark.parametrize("media_type", ["text/plain", "application/xml", "application/x-www-form-urlencoded"])
def test_a_body_that_is_not_json_is_415(send, media_type):
    status, body, _ = send("POST", "/boats", TOKEN | {"content-type": media_type}, b'{"name": "ada"}')
    assert (status, body["message"]) == (415, f"The media type {media_type} is not supported, use application/json")


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_without_a_media_type_is_415(send, is_chunked):
    pieces = [b'{"name"', b': "ada"}']
    status, answer, _ = send("POST", "/boats", TOKEN, iter(pieces) if is_chunked else b"".join(pieces))
    assert (status, answer["message"]) == (415, "The media type None is not supported, use application/json")


def test_a_request_without_a_body_needs_no_media_type(send):
    assert send("POST", "/echo", TOKEN)[0] == 200
    assert send("POST", "/boats", TOKEN)[0] == 400


@pytest.mark.parametrize(
    "media_type", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"]
)
def test_every_media_type_of_json_is_accepted(send, media_type):
    assert send("POST", "/boats", TOKEN | {"content-type": media_type}, b'{"name": "ada"}')[0] == 201


def test_a_body_over_the_limit_is_413(send):
    body = json.dumps({"name": "x" * MAX_JSON_BYTES}).encode()
    status, answer, _ = send("POST", "/boats", TOKEN | JSON, body)
    assert (status, answer["code"]) == (413, "moorage.too_large")


def test_a_body_over_the_limit_without_a_length_is_413(send):
    chunks = iter([b'{"name": "', b"x" * MAX_JSON_BYTES, b'"}'])
    assert send("POST", "/boats", TOKEN | JSON, chunks)[0] == 413


def test_a_body_at_the_limit_is_accepted(send):
    body = b'{"name": "' + b"x" * (MAX_JSON_BYTES - len(b'{"name": ""}')) + b'"}'
    assert len(body) == MAX_JSON_BYTES
    assert send("POST", "/boats", TOKEN | JSON, body)[0] == 201


@pytest.mark.parametrize(
    "body", [b"{", b"{'name': 1}", b'{"name": NaN}', b"\xff\xfe", b'{"name": "\\ud800"}', b"[" * 2000 + b"]" * 2000]
)
def test_malformed_json_is_400(send, body):
    status, answer, _ = send("POST", "/boats", TOKEN | JSON, body)
    assert (status, answer["code"]) == (400, "moorage.json")


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'"x"', b'{"name": 7}'])
def test_a_body_that_violates_the_schema_is_400(send, body):
    status, answer, _ = send("POST", "/boats", TOKEN | JSON, body)
    assert (status, answer["code"]) == (400, "moorage.schema")


def test_a_nul_character_is_400(send):
    """PostgreSQL cannot store it in a text, and no name contains one."""
    assert send("POST", "/echo", TOKEN | JSON, b'{"name": "a\\u0000b"}')[0] == 400
    assert send("GET", "/boats/a%00b")[0] == 400
    assert send("GET", "/boats/ada?name=a%00b")[0] == 400
    # With a backslash before it, it is five harmless characters.
    assert send("POST", "/echo", TOKEN | JSON, b'{"name": "a\\\\u0000b"}')[1] == {"given": {"name": "a\\u0000b"}}


def test_a_path_with_invalid_utf_8_is_refused_or_not_found(send):
    assert send("GET", "/boats/%ff%fe")[0] in (200, 400, 404)


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        ("conflict", 409, "harbour.taken"),
        ("missing", 404, "moorage.not_found"),
        ("away", 503, "moorage.unavailable"),
        ("remote", 502, "moorage.remote"),
        ("not-built", 501, "moorage.not_built"),
    ],
)
def test_our_errors_have_their_status_and_code(send, how, status, code):
    got, body, _ = send("GET", f"/fail/{how}")
    assert (got, body["code"]) == (status, code)


@pytest.mark.parametrize(
    ("how", "level", "traced"), [("not-built", "INFO", False), ("away", "WARNING", False), ("bug", "ERROR", True)]
)
def test_a_stack_trace_is_logged_only_for_unexpected_errors(caplog, how, level, traced):
    """In process only, because the test cannot read the log of the other process."""
    caplog.set_level("INFO", "moorage.wire.app")
    transport = InProcessTransport(application())
    assert transport.send("GET", f"/harbour/fail/{how}", TOKEN).status >= 500
    (record,) = caplog.records
    assert (record.levelname, bool(record.exc_info)) == (level, traced)
    assert record.path == f"/fail/{how}"
    assert traced or record.reason


def test_an_unexpected_error_is_500_and_shows_only_the_request_id(send):
    status, body, headers = send("GET", "/fail/bug")
    assert (status, body["code"]) == (500, "moorage.bug")
    assert headers["x-openstack-request-id"] in body["message"]
    assert "secret" not in json.dumps(body)


# ---------------------------------------------------------------------------------------- the order of refusals

#: Each row has all errors of the rows below it, and one more that is refused earlier.
ORDER = [
    (401, "DELETE", "/nowhere", version("harbour 9.9"), None),
    (401, "PUT", "/boats/ada", version("harbour 9.9"), None),
    (401, "GET", "/boats/ada", version("harbour 9.9"), None),
    (406, "GET", "/nowhere", TOKEN | version("harbour 9.9"), None),
    (406, "PUT", "/boats/ada", TOKEN | version("harbour 9.9"), None),
    (400, "GET", "/boats/ada", TOKEN | version("harbour x"), None),
    (404, "POST", "/nowhere", TOKEN | {"content-type": "text/plain"}, b"x" * (MAX_JSON_BYTES + 1)),
    (405, "POST", "/boats/ada", TOKEN | {"content-type": "text/plain"}, b"x" * (MAX_JSON_BYTES + 1)),
    (413, "POST", "/boats", TOKEN | {"content-type": "text/plain"}, b"x" * (MAX_JSON_BYTES + 1)),
    (415, "POST", "/boats", TOKEN | {"content-type": "text/plain"}, b"x"),
    (400, "POST", "/boats", TOKEN | JSON, b"x"),
]


@pytest.mark.parametrize(("status", "method", "path", "headers", "body"), ORDER)
def test_errors_are_checked_in_the_same_order_as_upstream(send, status, method, path, headers, body):
    assert send(method, path, headers, body)[0] == status


# ------------------------------------------------------------------------------------------------- microversions


def test_without_a_version_header_the_minimum_is_used(send):
    _, body, headers = send("GET", "/boats/ada")
    assert body["version"] == "1.0"
    assert headers["openstack-api-version"] == "harbour 1.0"
    assert headers["x-harbour-api-version"] == "1.0"
    assert headers["vary"] == "OpenStack-API-Version, X-Harbour-API-Version"


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ("harbour 1.2", "1.2"),
        ("harbour latest", "1.3"),
        ("HARBOUR 1.2", "1.2"),
        ("compute 2.99", "1.0"),
        ("compute 2.99, harbour 1.1", "1.1"),
    ],
)
def test_the_header_chooses_the_version(send, wanted, got):
    _, body, headers = send("GET", "/boats/ada", TOKEN | version(wanted))
    assert body["version"] == got
    assert headers["openstack-api-version"] == f"harbour {got}"


def test_the_legacy_version_header_is_used_without_the_new_one(send):
    legacy = {"x-harbour-api-version": "1.2"}
    assert send("GET", "/boats/ada", TOKEN | legacy)[1]["version"] == "1.2"
    assert send("GET", "/boats/ada", TOKEN | legacy | version("harbour 1.1"))[1]["version"] == "1.1"


def test_a_version_outside_the_range_is_406_with_the_range(send):
    status, body, _ = send("GET", "/boats/ada", TOKEN | version("harbour 1.4"))
    assert status == 406
    assert "Minimum is 1.0 and maximum is 1.3" in body["message"]


def test_a_public_route_ignores_the_version(send):
    assert send("GET", "/", version("harbour 9.9"))[0] == 200


@pytest.mark.parametrize(
    ("wanted", "status", "era"), [("1.0", 404, None), ("1.1", 200, "old"), ("1.2", 200, "new"), ("1.3", 200, "new")]
)
def test_a_route_exists_only_in_its_versions(send, wanted, status, era):
    got, body, _ = send("GET", "/eras/ada", TOKEN | version(f"harbour {wanted}"))
    assert (got, body.get("era")) == (status, era)


def test_a_schema_changes_with_the_version(send):
    body = b'{"name": "ada", "colour": "red"}'
    assert send("POST", "/boats", TOKEN | JSON | version("harbour 1.1"), body)[0] == 201
    assert send("POST", "/boats", TOKEN | JSON | version("harbour 1.2"), body)[0] == 400


# ---------------------------------------------------------------------------------------- request ids and logs


def test_a_request_gets_an_id_that_the_handler_can_read(send):
    _, body, headers = send("GET", "/boats/ada")
    assert re.fullmatch(r"req-[0-9a-f-]{36}", headers["x-openstack-request-id"])
    assert body["request_id"] == headers["x-openstack-request-id"]


GIVEN = "req-4d17d41a-830d-47b2-91c7-4f9fc0ae611e"


@pytest.mark.parametrize("path", ["/boats/ada", "/nowhere", "/fail/bug"])
def test_a_request_id_of_the_client_does_not_replace_ours(send, path):
    seen = [send("GET", path, TOKEN | {"x-openstack-request-id": GIVEN})[2]["x-openstack-request-id"] for _ in range(2)]
    assert len({*seen, GIVEN}) == 3


@pytest.mark.parametrize(
    ("given", "kept"),
    [(GIVEN, GIVEN), ("7", ""), ("req-x", ""), (f"{GIVEN}; more", ""), (f"{GIVEN}\n", ""), ("x" * 500, ""), (None, "")],
)
def test_a_request_id_of_the_client_is_logged_and_passed_on_beside_ours(given, kept):
    """In process only, because the test cannot read the log of the other process."""
    seen = []

    def note(request):
        seen.append((request_context.get()[1] == request.request_id, global_request.get(), outgoing_request_id()))
        return Response(204)

    app = application_of(Route("GET", "/", note, None))
    headers = {} if given is None else {"x-openstack-request-id": given}
    answer = InProcessTransport(app).send("GET", "/harbour/", headers)
    assert seen == [(True, kept, kept or answer.headers["x-openstack-request-id"])]


def test_a_call_in_this_process_does_not_change_the_callers_request_id(send):
    before = request_context.set(("compute", "req-outer"))
    given = global_request.set("req-of-a-client")
    try:
        send("GET", "/boats/ada")
        send("GET", "/fail/bug")
        assert request_context.get() == ("compute", "req-outer")
        assert global_request.get() == "req-of-a-client"
    finally:
        request_context.reset(before)
        global_request.reset(given)


# ------------------------------------------------------------------------------------------------------- bodies


def test_a_route_without_a_schema_may_have_no_body(send):
    assert send("POST", "/echo")[1] == {"given": None}
    assert send("POST", "/echo", TOKEN | JSON, b"[1]")[1] == {"given": [1]}


def test_an_unexpected_body_is_ignored(send):
    assert send("PUT", "/quiet", TOKEN | {"content-type": "text/plain"}, b"anything")[1] == {"given": None}


def test_a_created_object_has_a_location(send):
    status, body, headers = send("POST", "/boats", TOKEN | JSON, '{"name": "grün"}'.encode())
    assert (status, body) == (201, {"given": {"name": "grün"}})
    assert "/harbour/boats/" in headers["location"]


def test_a_streamed_answer_is_sent_piece_by_piece(transport):
    with transport.stream("GET", "/harbour/log", TOKEN) as (status, headers, chunks):
        content = b"".join(chunks)
    assert (status, headers["content-type"]) == (200, "text/plain")
    assert content == b"".join(b"line %d\n" % number for number in range(1000))


def test_a_streamed_body_may_have_any_size(send):
    headers = TOKEN | {"content-type": "application/octet-stream"}
    size = 3 * MAX_JSON_BYTES * 100
    assert send("PUT", "/cargo", headers, b"x" * size)[1] == {"size": size, "type": "application/octet-stream"}
    chunks = (b"y" * 1000 for _ in range(1000))
    assert send("PUT", "/cargo", headers, chunks)[1]["size"] == 1_000_000


def test_a_streamed_body_may_be_empty(send):
    assert send("PUT", "/cargo", TOKEN | {"content-type": "application/octet-stream"}, b"")[1]["size"] == 0


# ------------------------------------------------------------------------------------------- mount and healthcheck


def test_each_service_is_below_its_prefix(transport):
    for prefix in ("/harbour", "/other"):
        answer = transport.send("GET", f"{prefix}/", {})
        assert json.loads(answer.body)["base_url"].endswith(prefix)


@pytest.mark.parametrize("path", ["/", "/nothing", "/harbours/boats/ada", "/nothing/boats"])
def test_a_path_outside_of_all_services_is_answered_with_their_names(transport, path):
    answer = transport.send("GET", path, TOKEN)
    assert answer.status == 404
    assert json.loads(answer.body)["message"] == f"no service at {path}; services are at /behind, /harbour, /other"


def test_the_healthcheck_is_public(send):
    assert send("GET", "/healthcheck", {})[:2] == (200, {"status": "ok", "troubles": {}})
    status, _, headers = send("POST", "/healthcheck", {})
    assert (status, headers["allow"]) == (405, "GET, OPTIONS")


def test_concurrent_requests_get_their_own_answers(send):
    mixed = []

    def ask(number):
        for _ in range(20):
            _, body, headers = send("GET", f"/boats/{number}", {"x-auth-token": f"u{number}/"})
            request_id = headers["x-openstack-request-id"]
            if (body["name"], body["caller"], body["request_id"]) != (str(number), f"u{number}", request_id):
                mixed.append(body)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mixed == []
