import re

import pytest

from moorage.core import errors
from moorage.wire.errors import problem_of, status_of

TREE = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MoorageError)]


def test_error_codes_have_one_format_and_are_unique():
    codes = [kind.code for kind in TREE]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"moorage\.[a-z_]+", code) for code in codes)


def test_an_error_keeps_its_message_its_fields_and_its_own_code():
    error = errors.Conflict("taken", code="jobs.fenced", epoch=3)
    assert str(error) == error.message == "taken"
    assert (error.error_code, error.fields, errors.Conflict.code) == ("jobs.fenced", {"epoch": 3}, "moorage.conflict")


def test_each_class_of_error_has_its_http_status():
    statuses = {
        errors.Invalid: 400,
        errors.Unauthorized: 401,
        errors.Forbidden: 403,
        errors.OverQuota: 403,
        errors.NotFound: 404,
        errors.MethodNotAllowed: 405,
        errors.NotAcceptable: 406,
        errors.Conflict: 409,
        errors.ConcurrentUpdate: 409,
        errors.TooLarge: 413,
        errors.UnsupportedMedia: 415,
        errors.NotBuilt: 501,
        errors.Unavailable: 503,
        errors.RetryableConflict: 503,
        errors.StartError: 500,
        errors.MoorageError: 500,
    }
    assert {kind: status_of(kind("x")) for kind in statuses} == statuses
    assert status_of(errors.RemoteError("x", status=418)) == 502


def test_an_unexpected_exception_is_answered_with_the_request_id_only():
    problem = problem_of(KeyError("secret"), "req-1", "*/*")
    assert (problem.status, problem.code, problem.error) == (500, "moorage.bug", None)
    assert "req-1" in problem.message
    assert "secret" not in problem.message


def quoted(cause, kind=errors.Conflict):
    """An error that quotes the error of another service, as code that translates such errors raises it."""
    try:
        try:
            raise cause
        except errors.MoorageError as error:
            raise kind(f"that is so: {error.message}") from error
    except errors.MoorageError as error:
        return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (errors.Unavailable("disk full"), "disk full"),
        (errors.Unavailable("http://x is away", url="http://x"), "another service does not answer; try again later"),
        (
            quoted(errors.Unavailable("http://x is away", url="http://x", peer="image"), errors.Unavailable),
            "that is so: the image service does not answer; try again later",
        ),
        (
            errors.RemoteError("compute answered 400 to GET /x: no", status=400, peer="compute", detail="no"),
            "the compute service refused a request; an administrator can read why",
        ),
        (
            quoted(errors.RemoteError("image answered 413 to PUT /x: full", status=413, peer="image", detail="full")),
            "that is so: the image service refused: full",
        ),
        (
            quoted(
                errors.RemoteError(
                    "compute answered 409",
                    status=409,
                    peer="compute",
                    detail="placement answered 409 to PUT /secret: b",
                )
            ),
            "that is so: the compute service refused a request; an administrator can read why",
        ),
    ],
)
def test_messages_for_tenants_name_the_failed_service_but_no_addresses_and_requests(error, told):
    assert errors.message_for_tenants(error) == told


def test_the_message_of_an_error_whose_context_is_a_loop_is_found():
    first, second = errors.Unavailable("http://a:1 does not answer", url="http://a:1"), errors.Unavailable("no image")
    first.__context__, second.__context__ = second, first
    assert errors.message_for_tenants(second) == "no image"
