"""The view of explanations: parsing of pasted queries, and the stages of an explanation."""

import pytest

from moorage.dashboard.views.explain_view import of_query, of_server, parse_pasted_query, query_text


@pytest.mark.parametrize(
    "text",
    ["resources=VCPU:4&required=CUSTOM_A", " /allocation_candidates?resources=VCPU:4&required=CUSTOM_A \n"],
)
def test_a_pasted_query_is_parsed_with_or_without_its_path(text):
    asked = parse_pasted_query(text)
    assert asked.pairs == (("resources", "VCPU:4"), ("required", "CUSTOM_A"))
    assert query_text(asked.pairs) == "resources=VCPU:4&required=CUSTOM_A"


def test_pasted_extra_specs_are_parsed_line_by_line():
    asked = parse_pasted_query("# a comment\nresources:VCPU=4\n\ntrait:CUSTOM_A = 'required'\n")
    assert asked.extra_specs == (("resources:VCPU", "4"), ("trait:CUSTOM_A", "required"))
    assert parse_pasted_query("resources:VCPU=4").extra_specs == (("resources:VCPU", "4"),)


@pytest.mark.parametrize(
    "text", ["", "  \n# only a comment", "nonsense", "resources=VCPU:1&nonsense", "a:b", "a:b=1\nnonsense"]
)
def test_a_text_that_is_neither_a_query_nor_extra_specs_is_refused_with_advice(text):
    with pytest.raises(ValueError, match=r"enter "):
        parse_pasted_query(text)


def test_the_stages_of_a_query_have_the_hosts_left_and_removed_by_each_constraint():
    steps = [
        {
            "constraint": "resources:VCPU=4",
            "before": 8,
            "after": 6,
            "removed": [{"provider": "a", "reason": "full"}] * 2,
        },
        {"constraint": "required=CUSTOM_A", "before": 6, "after": 0, "removed": []},
    ]
    change = {"provider": "h1", "parts": ["without CUSTOM_A"], "query": "resources=VCPU:4"}
    closest = [{"provider": "h1", "lacks": ["CUSTOM_A"]}]
    funnel = of_query({"text": "none", "candidates": 0, "steps": steps, "closest": closest, "change": change}, "q")
    assert [(one.removed, one.after, one.width, one.lost_width) for one in funnel.stages] == [
        (2, 6, 75.0, 25.0), (6, 0, 0.0, 75.0)
    ]  # fmt: skip
    assert funnel.stages[0].reasons == ("full",)
    assert (funnel.fits, funnel.closest[0].lacks, funnel.change.query) == (False, ("CUSTOM_A",), "resources=VCPU:4")


def test_the_stages_of_a_server_include_the_filters_and_show_host_names_only_to_administrators():
    document = {
        "text": "none", "hosts": 0, "constraints": [{"constraint": "c", "before": 4, "after": 2}],
        "filters": [{"filter": "is_not_ruled_out", "before": 2, "after": 0}], "rejected": {"it is there": 2},
        "fault": None,
    }  # fmt: skip
    funnel = of_server(document)
    assert [(one.condition, one.removed, one.considered) for one in funnel.stages] == [
        ("c", 2, 4), ("usable for this server", 2, 4)
    ]  # fmt: skip
    assert (funnel.rejected, funnel.closest, funnel.change, funnel.hosts) == ((("it is there", 2),), (), None, ())
    told = of_server({**document, "closest": ["h1: lacks it"], "change": "less", "host_names": ["h2"], "query": "q"})
    assert (told.closest[0].host, told.closest[0].lacks, told.change.parts) == ("h1", ("lacks it",), ("less",))


def kept_document(*, before=20, first=20, closest=()):
    return {
        "text": "none", "hosts": 0,
        "constraints": [{"constraint": "resources:VCPU=1", "before": first, "after": before},
                        {"constraint": "enabled and not under reservation", "before": before, "after": 0}],
        "filters": [], "rejected": {}, "fault": None, "closest": closest, "change": "remove it",
    }  # fmt: skip


def test_hosts_that_leases_have_are_no_reason_to_change_the_request():
    only_kept = ["h1: root_required=!CUSTOM_RESERVATION_HOST: h1 has it"]
    funnel = of_server(kept_document(closest=only_kept))
    assert (funnel.text, funnel.is_kept_for_leases) == (
        "All 20 hosts are kept for leases, or disabled: reserve first.",
        True,
    )
    assert (funnel.closest, funnel.change) == ((), None)
    more = of_server(kept_document(closest=[*only_kept, "h2: resources:VCPU=1: h2 has 0 of 1 in use"]))
    assert len(more.closest) == 2
    assert more.change.parts == ("remove it",)


def test_the_hosts_that_leases_have_are_counted_after_the_conditions_before():
    texts = [of_server(kept_document(before=left, first=20)).text for left in (7, 1)]
    assert texts == [
        "All 7 hosts that fit otherwise are kept for leases, or disabled: reserve first.",
        "The only host that fits otherwise is kept for leases, or disabled: reserve first.",
    ]
    assert not of_server({**kept_document(), "constraints": []}).is_kept_for_leases
