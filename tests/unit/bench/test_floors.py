"""The floors of issue 17 in `make bench`."""

import pytest

from bench.floors import HEADLINES, LOADING, OTHER_HEADLINES, Floor, Unit, floor_of
from bench.plan import stages
from bench.report import headlines
from bench.results import Row, Side


def row_of(name, *, upstream_ms, ours_ms, hosts=1000, profile="flat", slow_p50=False):
    p50_ms = 1000.0 if slow_p50 else ours_ms
    return Row(
        name,
        profile,
        hosts,
        1,
        floor_of("postgresql", profile, hosts, name),
        Side(p50_ms=[upstream_ms], cpu_ms=[upstream_ms]),
        Side(p50_ms=[p50_ms], cpu_ms=[ours_ms]),
    )


def test_every_row_of_a_headline_is_measured_in_the_cloud_of_the_headline():
    measured = {
        (stage.cloud.profile, stage.cloud.hosts, name)
        for stage in stages([1000, 10_000], full=True)
        for name in (LOADING, *(measure.name for measure in stage.measures))
    }
    wanted = {(one.profile, one.hosts, name) for one in HEADLINES for name in one.rows}
    assert wanted - measured == set()


@pytest.mark.parametrize(("ours_ms", "verdict"), [(0.22, "reached"), (0.23, "missed")])
def test_a_factor_is_compared_by_cpu_alone(ours_ms, verdict):
    row = row_of("32 clients on one host", upstream_ms=22.5, ours_ms=ours_ms, slow_p50=True)
    assert (row.floor, row.verdict()) == (Floor(100), verdict)


def test_wide_trees_have_a_maximum_in_milliseconds_which_needs_no_figure_of_upstream():
    row = row_of("wide: 8 groups, 1,000 hosts", upstream_ms=1.0, ours_ms=20.1, profile="wide")
    row.upstream = Side()
    assert (row.floor, row.verdict()) == (Floor(20, Unit.MS), "missed")


def test_rows_of_other_databases_sizes_and_names_have_no_floor():
    assert floor_of("sqlite", "flat", 1000, "claim, 1 client") is None
    assert floor_of("postgresql", "flat", 10_000, "claim, 1 client") is None
    assert floor_of("postgresql", "nested", 1000, LOADING) is None
    assert row_of("memory, all processes", upstream_ms=1.0, ours_ms=1.0).verdict() == ""


def test_the_headlines_come_in_the_order_of_the_issue_with_their_figures():
    rows = [
        row_of("small reads, mixed, 8 clients", upstream_ms=3.5, ours_ms=0.2),
        row_of("small reads, mixed", upstream_ms=3.5, ours_ms=0.1),
        row_of("candidates, limit 10", upstream_ms=100, ours_ms=0.2),
    ]
    lines = headlines(rows)[2:]
    assert len(lines) == len(HEADLINES) + len(OTHER_HEADLINES)
    by_name = {one.name: line for one, line in zip(HEADLINES, lines, strict=False) if one.hosts == 1000}
    assert by_name["candidates, limit 10"].split()[-3:] == ["300x", "reached", "500x"]
    assert by_name["small reads"].split()[-4:] == ["18x", "MISSED", "17.5x,", "35x"]
    assert by_name["loading"].endswith("not measured in this run")
    assert lines[-1] == f"  {'start at 10,000 hosts':44} under 1 s: make bench ARGS=growth"
