"""Unused classes and traits on a whole plane: found on request, deleted, and created again."""

from functools import partial

import pytest

from moorage.audit.model import FindingKind
from moorage.core.names import reservation_class
from tests.system.audit.rig import AuditedPlane, undo

pytestmark = pytest.mark.slow

CLASS = reservation_class("00000007-0000-4000-8000-000000000000")
TRAIT = "CUSTOM_FPGA_INTEL_FUNCTION_00000007_0000_4000_8000_000000000000"
OF_A_FLAVOR = reservation_class("00000008-0000-4000-8000-000000000000")
OF_A_PROFILE = "CUSTOM_FPGA_INTEL_FUNCTION_00000008_0000_4000_8000_000000000000"


@pytest.fixture
def plane(tmp_path):
    with AuditedPlane(tmp_path) as plane:
        yield plane


def test_unused_classes_and_traits_are_deleted_on_request_and_restored_by_the_receipt(plane):
    """Names that a flavor or a device profile requests count as used."""
    plane.running_lease(1)
    placement = plane.services.placement
    for name in (CLASS, "CUSTOM_MINE", OF_A_FLAVOR, "CUSTOM_ACCELERATOR_QAT"):
        placement.ensure_class(name)
    for name in (TRAIT, "CUSTOM_OWN", OF_A_PROFILE):
        placement.ensure_trait(name)
    plane.create_flavor("asks", **{f"resources:{OF_A_FLAVOR}": "1", "trait:CUSTOM_X": "forbidden"})
    group = {"resources:CUSTOM_ACCELERATOR_QAT": "1", f"trait:{OF_A_PROFILE}": "required"}
    plane.accelerator.request("POST", "/device_profiles", json=[{"name": "p", "groups": [group]}])
    assert plane.audit() == []
    found = plane.audit(names=True)
    assert [(one.kind, one.subject) for one in found] == [
        (FindingKind.UNUSED_CLASS, CLASS),
        (FindingKind.UNUSED_TRAIT, TRAIT),
    ]
    assert [outcome.text for outcome in plane.fix(found)] == ["done", "done"]
    assert plane.audit(names=True) == []
    assert (placement.has_class(CLASS), placement.has_trait(TRAIT)) == (False, False)
    undo(plane, plane.receipt_path.read_text())
    assert (placement.has_class(CLASS), placement.has_trait(TRAIT)) == (True, True)


@pytest.mark.parametrize("how", ["asked for", "had"])
def test_a_trait_that_is_used_after_the_audit_is_kept(plane, how):
    plane.services.placement.ensure_trait(TRAIT)
    found = plane.audit(names=True)
    if how == "asked for":
        plane.create_flavor("asks", **{f"trait:{TRAIT}": "required"})
        expected = "left alone: it is in use now"
    else:
        plane.before["DELETE", "placement", f"/traits/{TRAIT}"] = partial(
            plane.services.placement.put_trait, plane.host, TRAIT, wanted=True
        )
        expected = "left alone: it changed meanwhile"
    (outcome,) = plane.fix(found)
    assert outcome.text.startswith(expected)
    assert plane.services.placement.has_trait(TRAIT)
