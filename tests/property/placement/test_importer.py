"""With any references in the peer's tables, the import gives a forest of trees, and reports every omission."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from moorage.core.import_findings import ImportFinding, ImportOutcome
from moorage.placement.importing.rules import (
    ImportedProvider,
    PeerAllocation,
    PeerProvider,
    PlacementFindingKind,
    imported_allocations,
    imported_providers,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
IDS = range(1, 8)

references = st.none() | st.sampled_from([*IDS, 99])
rows = st.lists(
    st.builds(
        PeerProvider,
        id=st.sampled_from(IDS),
        uuid=st.just(""),
        name=st.none() | st.sampled_from(["", "a", "b", "b ", "x" * 201]),
        generation=st.none() | st.integers(0, 9),
        root_id=references,
        parent_id=references,
        created_at=st.just(NOW),
        updated_at=st.just(NOW),
    ),
    unique_by=lambda row: row.id,
).map(
    lambda made: [
        PeerProvider(
            row.id,
            f"u{row.id}",
            row.name,
            row.generation,
            row.root_id,
            row.parent_id,
            row.created_at,
            row.updated_at,
        )
        for row in made
    ]
)


def split(found) -> tuple[list[ImportedProvider], list[ImportFinding]]:
    found = list(found)
    return [one for one in found if isinstance(one, ImportedProvider)], [
        one for one in found if isinstance(one, ImportFinding)
    ]


@given(rows, st.booleans())
def test_every_provider_is_imported_into_a_tree_with_parents_before_children(given_rows, pads):
    taken, findings = split(imported_providers(given_rows, pads=pads))
    assert {one.id for one in taken} == {row.id for row in given_rows}
    assert all(one.outcome is not ImportOutcome.LEFT_OUT for one in findings)
    seen: dict[int, ImportedProvider] = {}
    for one in taken:
        if one.parent_id is None:
            assert (one.root_id, one.depth) == (one.id, 0)
        else:
            parent = seen[one.parent_id]
            assert (one.root_id, one.depth) == (parent.root_id, parent.depth + 1)
        seen[one.id] = one
    names = [one.name.rstrip(" ") if pads else one.name for one in taken]
    assert len(set(names)) == len(names)
    assert all(0 < len(one.name) <= 200 for one in taken)


@given(rows)
def test_a_finding_is_reported_for_each_difference_from_the_source_and_for_nothing_else(given_rows):
    taken, findings = split(imported_providers(given_rows))
    told = {(one.kind, one.subject) for one in findings}
    for row in given_rows:
        one = next(one for one in taken if one.id == row.id)
        assert ((PlacementFindingKind.RENAMED, row.uuid) in told) == (one.name != row.name)
        assert ((PlacementFindingKind.NO_GENERATION, row.uuid) in told) == (row.generation is None)
        assert ((PlacementFindingKind.WRONG_ROOT, row.uuid) in told) == (one.root_id != row.root_id)
        is_cut = (PlacementFindingKind.LOOP, row.uuid) in told or (PlacementFindingKind.LOST_PARENT, row.uuid) in told
        assert is_cut == (one.parent_id != row.parent_id)
        if not is_cut:
            assert one.parent_id == row.parent_id


allocations = st.lists(
    st.builds(
        PeerAllocation,
        provider_id=st.sampled_from([1, 2, 99]),
        class_id=st.sampled_from([0, 1, 98]),
        used=st.integers(1, 2**31 - 1),
        written_at=st.just(NOW),
    )
)


@given(allocations)
def test_allocations_of_a_consumer_are_added_up_and_each_omitted_row_is_reported(given_rows):
    held, findings = imported_allocations("c", given_rows, {1, 2}, {0, 1})
    known = [row for row in given_rows if row.provider_id != 99 and row.class_id != 98]
    assert {(row.provider_id, row.class_id) for row in known} == held.keys()
    assert len(findings) == len(given_rows) - len(held)
    for place, units in held.items():
        there = [row.used for row in known if (row.provider_id, row.class_id) == place]
        assert units.used <= 2**31 - 1
        if sum(there) <= 2**31 - 1:
            assert units.used == sum(there)
