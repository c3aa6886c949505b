"""How much a reader must follow to understand how hosts are found and claimed."""

from tests.flow_counts import FlowTrace

#: Each filter and each weigher is an entry of a table; the reader of the flow need not follow them.
TABLES = {"scheduler/filters.py", "scheduler/weighers.py"}


def test_hosts_are_found_and_claimed_by_45_functions_in_14_modules_without_a_call_back_up(plane, host):
    plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    host.work()
    for _ in range(3):
        plane.boot("small")
    with FlowTrace("compute/", "scheduler/", start="HostSelector.claim_hosts") as trace:
        plane.builder.run_once()
    functions = {(file, name) for file, name in trace.functions if file not in TABLES}
    assert ("compute/scheduling/pipeline.py", "HostSelector.claim_hosts") in functions
    assert len(functions) <= 45, trace
    assert len({file for file, _ in functions}) <= 14, trace
    assert trace.calls_up == set()
