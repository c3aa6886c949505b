import re

from moorage.core import errors
from moorage.wire.errors import problem_of, status_of

TREE = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MoorageError)]


def test_codes_are_stable_and_each_belongs_to_one_kind():
    codes = [kind.code for kind in TREE]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"moorage\.[a-z_]+", code) for code in codes)


def test_an_error_keeps_its_message_its_facts_and_a_code_of_its_own():
    error = errors.Conflict("taken", code="jobs.fenced", epoch=3)
    assert str(error) == error.message == "taken"
    assert (error.error_code, error.fields, errors.Conflict.code) == ("jobs.fenced", {"epoch": 3}, "moorage.conflict")


def test_each_kind_has_its_status():
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


def test_a_bug_shows_where_to_look_and_nothing_else():
    problem = problem_of(KeyError("secret"), "req-1", "*/*")
    assert (problem.status, problem.code, problem.error) == (500, "moorage.bug", None)
    assert "req-1" in problem.message
    assert "secret" not in problem.message
