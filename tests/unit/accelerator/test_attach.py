"""Plug and unplug on one host: the requirements of the accelerator-attach specification."""

from dataclasses import replace

import pytest

from moorage.accelerator.host.agent import CLEANING_PERIOD
from moorage.accelerator.model import errors as e
from moorage.accelerator.model.device_history import DeviceEvent
from moorage.accelerator.model.devices import HandleState
from moorage.core.errors import Unavailable
from moorage.images.model import Member, MemberStatus
from moorage.jobs.contract import ProgramJob
from tests.unit.accelerator.rig import (
    AES,
    GPU,
    PROJECT,
    R1,
    R2,
    R3,
    SHA,
    TYPE_R1,
    TYPE_R2,
    TYPE_R3,
    Rig,
    fault,
    fpga,
    gpu,
    in_threads,
    many_gpus,
    new_instance,
    rp,
)

GPUS = ["0000:17:00.0", "0000:65:00.0", "0000:ca:00.0", "0000:e3:00.0"]


@pytest.fixture
def rig(tmp_path) -> Rig:
    return Rig(tmp_path)


# -------------------------------------------------------------------------------------- programming


def plug_from(rig, image_id, specs, region=R1):
    """Plugs for a server that is created from the image `image_id`."""
    info = {"uuid": new_instance(), "name": "vm", "project_id": PROJECT, "image_id": image_id}
    return rig.agent.plug(info, {"": [rp(region)]}, specs)


def test_the_servers_image_names_the_function_if_the_flavor_names_none(rig):
    """R18: the VM image is read by its id for accelerator hints; the flavor's own value takes precedence."""
    aes = rig.image("aes", region_uuid=TYPE_R1, function_uuid=AES)
    small = rig.image("small", region_uuid=TYPE_R2, function_uuid=SHA)
    guest = rig.image("guest", accel__function_id=AES)
    plug_from(rig, guest, fpga(bitstream=small), R2)
    assert (rig.carries(R2), ("get", guest) in rig.images.asked) == (small, False)
    plug_from(rig, guest, fpga())
    assert (rig.carries(R1), ("get", guest) in rig.images.asked) == (aes, True)


def test_a_missing_server_image_or_one_without_hints_programs_nothing(rig):
    """R18, R26."""
    rig.image("aes", region_uuid=TYPE_R1, function_uuid=AES)
    plug_from(rig, rig.image("guest"), fpga())
    plug_from(rig, new_instance(), fpga())
    assert rig.programs() == []


def test_the_servers_image_is_not_read_for_gpus_or_invalid_parameters(rig):
    """R2, R18, R21"""
    guest = rig.image("guest", accel__function_id=AES)
    plug_from(rig, guest, gpu(), GPU)
    with pytest.raises(e.BadRequest, match="of the selected resource providers"):
        plug_from(rig, guest, fpga(), GPU)
    assert rig.images.asked == []


@pytest.mark.parametrize("visibility", ["private", "shared", "community"])
def test_the_servers_image_may_only_request_public_bitstreams(rig, visibility):
    """R18: any user can create a server's image, so it may only name bitstreams that an operator has published."""
    rig.image("aes", visibility=visibility, region_uuid=TYPE_R1, function_uuid=AES)
    with pytest.raises(e.BitstreamNotFound, match=f"{visibility}, but a server's image may only request public ones"):
        plug_from(rig, rig.image("guest", accel__function_id=AES), fpga())
    assert (rig.programs(), rig.held.attachments) == ([], {})


@pytest.mark.parametrize("visibility", ["shared", "community"])
@pytest.mark.parametrize("named", ["function", "bitstream"])
def test_a_shared_or_community_bitstream_of_another_project_is_not_programmed(rig, visibility, named):
    """Any member of a project can create such an image and set any function in its properties."""
    theirs = rig.image("aes", visibility=visibility, owner="2" * 32, region_uuid=TYPE_R1, function_uuid=AES)
    if visibility == "shared":
        rig.directory_of_images.change(
            theirs,
            lambda image: replace(
                image, members={PROJECT: Member(MemberStatus.ACCEPTED, image.created_at, image.created_at)}
            ),
        )
    wanted = fpga(function=AES) if named == "function" else fpga(bitstream=theirs)
    with pytest.raises(e.BitstreamNotFound):
        rig.plug(new_instance(), wanted, R1)
    with pytest.raises(e.BitstreamNotFound):
        rig.agent.program_region(ProgramJob(deployable=R1, image_id=theirs, project_id=PROJECT))
    assert (rig.programs(), rig.held.attachments) == ([], {})
    public = rig.image("aes", region_uuid=TYPE_R1, function_uuid=AES)
    rig.plug(new_instance(), fpga(function=AES), R1)
    assert rig.carries(R1) == public


def test_a_gpu_is_plugged_without_images_and_without_programming(rig):
    """R2: FPGA-only steps are skipped for others. R28: a list with one entry per accelerator."""
    assert rig.plug(new_instance(), gpu(), GPU) == [GPU]
    assert rig.images.asked == []
    assert rig.programs() == []
    assert rig.is_dirty(GPU), "the driver has prepared it"


def test_a_gpu_before_a_region_does_not_keep_the_region_from_being_programmed(rig):
    """R2: the steps are skipped for the GPU only."""
    aes = rig.image("aes", region_uuid=TYPE_R1, function_uuid=AES)
    specs = {
        "resources_A:CUSTOM_ACCELERATOR_GPU": "1",
        "resources_B:CUSTOM_ACCELERATOR_FPGA": "1",
        "function_B": AES,
    }
    assert rig.plug_groups(new_instance(), specs, {"_A": [rp(GPU)], "_B": [rp(R1)]}) == [GPU, "0000:3b:00.1"]
    assert (rig.programs(), rig.carries(R1)) == ([R1], aes)


def test_a_named_bitstream_is_fetched_once_and_programmed(rig):
    """R23: bitstream:<uuid>: exactly that image's data is read, the driver gets it, its id is remembered."""
    image_id = rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    other = rig.image("other", region_uuid=TYPE_R1, function_uuid=AES)
    assert rig.plug(new_instance(), fpga(bitstream=image_id), R1) == ["0000:3b:00.1"]
    assert rig.images.asked == [("get", image_id), ("open", image_id)]
    assert rig.carries(R1) == image_id != other
    assert rig.held.region(R1).bitstream.image_id == image_id


def test_the_image_for_function_and_region_type_is_programmed(rig):
    """R24: function id and the region type of the selected provider; another region's image is not chosen."""
    wanted = rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    rig.image("other region", region_uuid=TYPE_R2, function_uuid=AES)
    rig.image("other function", region_uuid=TYPE_R1, function_uuid=SHA)
    rig.plug(new_instance(), fpga(function=AES), R1)
    assert rig.images.asked[0] == ("find", {"function_uuid": AES, "region_uuid": TYPE_R1})
    assert rig.carries(R1) == wanted


def test_a_function_by_name_finds_the_same_image(rig):
    """R5: both forms resolve to the same image."""
    wanted = rig.image(region_uuid=TYPE_R1, function_uuid=AES, function_name="aes-256")
    rig.plug(new_instance(), fpga(function_name="aes-256"), R1)
    assert rig.carries(R1) == wanted


def test_the_function_property_of_cyborg_is_read(rig):
    """A11: accel:function_id as fallback."""
    wanted = rig.image(region_uuid=TYPE_R1, accel__function_id=AES)
    rig.plug(new_instance(), fpga(function=AES), R1)
    assert rig.carries(R1) == wanted


def test_a_bitstream_with_two_functions_gives_two_traits_and_two_handles(rig):
    """R4: after programming a 2-function bitstream, 2 function traits and 2 handles exist."""
    rig.image(region_uuid=TYPE_R1, function_uuid=f"{AES},{SHA}")
    assert rig.plug(new_instance(), fpga(2, function=SHA), R1) == ["0000:3b:00.1", "0000:3b:00.2"]
    functions = {trait for trait in rig.node(R1).traits if "_FUNCTION_" in trait}
    assert len(functions) == 2


def test_a_request_without_bitstream_and_function_programs_nothing(rig):
    """R26: neither bitstream nor function asked: no programming."""
    assert rig.plug(new_instance(), fpga(), R1) == ["0000:3b:00.1"]
    assert rig.programs() == []
    assert rig.images.asked == []


def test_a_flavor_that_requires_the_trait_of_a_loaded_function_gets_it_or_an_error(rig):
    """R26: a flavor that requires a function's trait gets it, or an error if it is gone."""
    rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    first = new_instance()
    rig.plug(first, fpga(function=AES), R1)
    rig.unplug(first)
    relying = fpga() | {f"trait:CUSTOM_FPGA_INTEL_FUNCTION_{AES.upper().replace('-', '_')}": "required"}
    assert rig.plug(new_instance(), relying, R1) == ["0000:3b:00.1"]
    with pytest.raises(e.ConflictingBitstreams, match=f"needs function .*, but region {R2} now has no function"):
        rig.plug(new_instance(), relying, R2)
    rig.check()


def test_a_group_cannot_rely_on_the_function_that_another_group_of_its_server_replaces(rig):
    """R26, R29: the region had the function when the server was scheduled; nothing is attached."""
    rig.image("aes", region_uuid=TYPE_R1, function_uuid=AES)
    rig.image("sha", region_uuid=TYPE_R1, function_uuid=SHA)
    first = new_instance()
    rig.plug(first, fpga(function=AES), R1)
    rig.unplug(first)
    specs = {
        "resources_A:CUSTOM_ACCELERATOR_FPGA": "1",
        "function_A": SHA,
        "resources_B:CUSTOM_ACCELERATOR_FPGA": "1",
        f"trait_B:CUSTOM_FPGA_INTEL_FUNCTION_{AES.upper().replace('-', '_')}": "required",
    }
    has = f"CUSTOM_FPGA_INTEL_FUNCTION_{SHA.upper().replace('-', '_')}"
    with pytest.raises(e.ConflictingBitstreams, match=f"needs function .*, but region {R1} now has {has}"):
        rig.plug_groups(new_instance(), specs, {"_A": [rp(R1)], "_B": [rp(R1)]})
    assert rig.held.attachments == {}
    rig.check()


def test_programming_another_function_replaces_the_function_trait(rig):
    """R9: the old function trait is removed and the new one is added; the resource tracker is woken."""
    aes = rig.image("aes", region_uuid=TYPE_R1, function_uuid=AES)
    sha = rig.image("sha", region_uuid=TYPE_R1, function_uuid=SHA)
    for image_id, function in ((aes, AES), (sha, SHA)):
        woken = rig.changes
        instance = new_instance()
        rig.plug(instance, fpga(bitstream=image_id), R1)
        assert rig.changes > woken
        functions = {trait for trait in rig.node(R1).traits if "_FUNCTION_" in trait}
        assert functions == {f"CUSTOM_FPGA_INTEL_FUNCTION_{function.upper().replace('-', '_')}"}
        rig.unplug(instance)


def test_a_region_with_the_wanted_function_is_not_programmed_again(rig):
    """A10: other handles of the region in use are no obstacle when the bitstream already is the wanted one."""
    rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    rig.plug(new_instance(), fpga(function=AES), R1)
    assert rig.plug(new_instance(), fpga(function=AES), R1) == ["0000:3b:00.2"]
    assert rig.programs() == [R1]


def test_a_region_in_use_is_not_programmed_with_another_bitstream(rig):
    """A10: refuse while another handle of the region is in use."""
    aes, sha = (rig.image(name, region_uuid=TYPE_R1, function_uuid=id_) for name, id_ in (("aes", AES), ("sha", SHA)))
    rig.plug(new_instance(), fpga(bitstream=aes), R1)
    with pytest.raises(e.ConflictingBitstreams, match="another instance uses region"):
        rig.plug(new_instance(), fpga(bitstream=sha), R1)
    assert rig.carries(R1) == aes
    rig.check()


def test_the_functions_of_a_private_bitstream_are_not_published_and_it_is_cleared_after_use(rig):
    """A12: its functions are not published; after the last use the region is blank."""
    rig.image(visibility="private", region_uuid=TYPE_R1, function_uuid=AES)
    instance = new_instance()
    rig.plug(instance, fpga(function=AES), R1)
    assert not any("_FUNCTION_" in trait for trait in rig.node(R1).traits)
    rig.unplug(instance)
    assert rig.carries(R1) == ""


# ------------------------------------------------------------------------------------------------ refusals


def test_two_matching_bitstreams_are_an_error_and_nothing_is_programmed_or_allocated(rig):
    """R25: MultipleBitstreams names both."""
    first, second = (rig.image(name, region_uuid=TYPE_R1, function_uuid=AES) for name in ("one", "two"))
    with pytest.raises(e.MultipleBitstreams) as caught:
        rig.plug(new_instance(), fpga(function=AES), R1)
    assert first in caught.value.message
    assert second in caught.value.message
    assert rig.watch.events == [("checkpoint",), ("checkpoint",)]  # both at the start: devices, providers
    assert not rig.held.handles


def test_the_error_for_no_matching_bitstream_names_the_criteria(rig):
    """R25: 0 matches are BitstreamNotFound, which names the criteria."""
    rig.image("elsewhere", region_uuid=TYPE_R3, function_uuid=AES)
    with pytest.raises(e.BitstreamNotFound, match=rf"{AES}.*{TYPE_R1}"):
        rig.plug(new_instance(), fpga(function=AES), R1)
    with pytest.raises(e.BitstreamNotFound):
        rig.plug(new_instance(), fpga(bitstream=new_instance()), R1)


@pytest.mark.parametrize(
    ("info", "selected", "specs"),
    [
        ({"name": "no uuid"}, {"": [rp(R1)]}, fpga()),
        ({"uuid": "no-uuid"}, {"": [rp(R1)]}, fpga()),
        ({"uuid": new_instance(), "name": 3}, {"": [rp(R1)]}, fpga()),
        ("no mapping", {"": [rp(R1)]}, fpga()),
        ({"uuid": new_instance()}, {}, fpga()),
        ({"uuid": new_instance()}, {"uuid": "nonsense"}, fpga()),
        ({"uuid": new_instance()}, {"": []}, fpga()),
        ({"uuid": new_instance()}, {"2": [rp(R1)]}, fpga()),
        ({"uuid": new_instance()}, {"": [rp("unknown")]}, fpga()),
        ({"uuid": new_instance()}, {"": [rp(GPU)]}, fpga()),
        ({"uuid": new_instance()}, {"": [rp(R1), rp(R2)]}, fpga()),
        ({"uuid": new_instance()}, {"": [rp(R1)]}, {}),
        ({"uuid": new_instance()}, {"": [rp(R1)]}, {"resources:VCPU": "1"}),
        ({"uuid": new_instance()}, {"": [rp(GPU)]}, gpu() | {"function": AES}),
    ],
)
def test_invalid_parameters_are_a_bad_request_and_change_nothing(rig, info, selected, specs):
    """R19, R21: a typed error; no row, no image call, nothing allocated. R15: also without accelerators."""
    before = rig.held
    with pytest.raises(e.BadRequest):
        rig.agent.plug(info, selected, specs)
    assert rig.held == before
    assert rig.images.asked == []


def test_a_deployable_without_free_handles_has_no_capacity(rig):
    rig.plug(new_instance(), fpga(2), R1)
    with pytest.raises(e.NoCapacity, match="0 free attach handles of 2"):
        rig.plug(new_instance(), fpga(), R1)


def test_image_data_with_a_wrong_checksum_is_not_programmed(rig):
    image_id = rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    (path,) = (
        path for path in (rig.directory / "images").iterdir() if path.is_file() and b"aesaes" in path.read_bytes()
    )
    path.write_bytes(path.read_bytes().replace(b"aes", b"eas"))
    with pytest.raises(e.ChecksumMismatch):
        rig.plug(new_instance(), fpga(bitstream=image_id), R1)
    assert rig.programs() == []
    assert not rig.held.handles


def test_if_the_image_service_is_unavailable_nothing_is_allocated(rig):
    def fails(view, properties):
        raise Unavailable("the image service does not answer")

    rig.images.find = fails
    with pytest.raises(Unavailable):
        rig.plug(new_instance(), fpga(function=AES), R1)
    rig.check()
    assert not rig.held.handles


# ------------------------------------------------------------------------------------- several accelerators


def test_several_accelerators_of_one_or_two_types_are_plugged_together(rig):
    """R28, R29: N requested, N distinct addresses; FPGA and GPU mixed."""
    assert rig.plug(new_instance(), fpga(2), R1) == ["0000:3b:00.1", "0000:3b:00.2"]
    assert rig.plug(new_instance(), fpga() | gpu(), GPU, R3, "not ours") == ["0000:af:00.0", GPU]


def test_the_function_of_a_group_with_two_types_is_for_its_programmable_device(rig):
    """R2, R23, R29."""
    rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    assert rig.plug(new_instance(), fpga(function=AES) | gpu(), GPU, R1) == ["0000:3b:00.1", GPU]
    assert rig.programs() == [R1]


def test_groups_get_the_providers_and_bitstreams_of_their_suffix(rig):
    """A1, A5: {<suffix>: [rp]}; each group its own bitstream."""
    aes = rig.image("aes", region_uuid=TYPE_R1, function_uuid=AES)
    sha = rig.image("sha", region_uuid=TYPE_R3, function_uuid=SHA)
    specs = {
        "resources_A:CUSTOM_ACCELERATOR_FPGA": "1",
        "bitstream_A": aes,
        "resources_B:CUSTOM_ACCELERATOR_FPGA": "1",
        "function_B": SHA,
    }
    answer = rig.plug_groups(new_instance(), specs, {"_A": [rp(R1)], "_B": [rp(R3)], "": [rp("root")]})
    assert answer == ["0000:3b:00.1", "0000:af:00.0"]
    assert (rig.carries(R1), rig.carries(R3)) == (aes, sha)


def test_a_provider_that_is_selected_by_uuid_applies_to_every_group(rig):
    """A5: {"uuid": ...}."""
    assert rig.plug_groups(new_instance(), fpga(), {"uuid": rp(R2)}) == ["0000:3b:00.3"]


def test_two_groups_on_one_region_must_request_the_same_bitstream(rig):
    """A1: otherwise ConflictingBitstreams, before a device is touched."""
    aes, sha = (rig.image(name, region_uuid=TYPE_R1, function_uuid=id_) for name, id_ in (("aes", AES), ("sha", SHA)))
    specs = {f"resources{n}:CUSTOM_ACCELERATOR_FPGA": "1" for n in (1, 2)}
    selected = {"1": [rp(R1)], "2": [rp(R1)]}
    with pytest.raises(e.ConflictingBitstreams, match="two groups"):
        rig.plug_groups(new_instance(), specs | {"bitstream1": aes, "bitstream2": sha}, selected)
    assert rig.programs() == []
    same = rig.plug_groups(new_instance(), specs | {"bitstream1": aes, "bitstream2": aes}, selected)
    assert same == ["0000:3b:00.1", "0000:3b:00.2"]


@pytest.mark.parametrize("verb", ["program", "prepare"])
def test_if_the_second_accelerator_fails_the_first_is_released(rig, verb):
    """R29: all or nothing."""
    rig.image("aes", region_uuid=TYPE_R1, function_uuid=AES)
    rig.image("aes", region_uuid=TYPE_R3, function_uuid=AES)
    rig.order(fault(verb, at=R3 if verb == "program" else "0000:af:00.0"))
    specs = {
        f"{kind}{n}:{what}": "1"
        for n in "12"
        for kind, what in (("resources", "CUSTOM_ACCELERATOR_FPGA"), ("function", AES))
    }
    with pytest.raises(e.ProgramFailed):
        rig.plug_groups(new_instance(), specs, {"1": [rp(R1)], "2": [rp(R3)]})
    assert not rig.held.handles
    assert not rig.held.attachments
    rig.check()


# ----------------------------------------------------------------------------------------- idempotence


def test_the_same_plug_again_gives_the_same_answer(rig):
    """A9: idempotent per instance and request."""
    rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    instance = new_instance()
    first = rig.plug(instance, fpga(function=AES), R1)
    events = list(rig.watch.events)
    assert rig.plug(instance, dict(reversed(fpga(function=AES).items())), R1) == first
    assert rig.watch.events == events


def test_a_different_plug_for_the_same_instance_is_refused(rig):
    """A9: a different request is AlreadyPlugged."""
    instance = new_instance()
    rig.plug(instance, gpu(), GPU)
    with pytest.raises(e.AlreadyPlugged):
        rig.plug(instance, fpga(), R1)


def test_concurrent_plugs_of_one_instance_give_the_same_answer(rig):
    """A9, as when a caller gives up and repeats its request: plugs of one instance run one after the other."""
    instance = new_instance()
    answers = in_threads([lambda: rig.plug(instance, fpga(2), R1)] * 8)
    assert answers == [["0000:3b:00.1", "0000:3b:00.2"]] * 8


def test_concurrent_plugs_never_get_the_same_handle(tmp_path):
    """R31: of 32 parallel plugs for 16 handles, 16 get distinct addresses and 16 are refused with a typed error."""
    rig = Rig(tmp_path, devices=many_gpus(16))
    names = [device.pci_id for device in rig.devices] * 2
    answers = in_threads([lambda name=name: rig.plug(new_instance(), gpu(), name) for name in names])
    refused = [answer for answer in answers if isinstance(answer, e.NoCapacity)]
    given = [answer[0] for answer in answers if isinstance(answer, list)]
    assert (len(refused), len(given), len(set(given))) == (16, 16, 16)
    rig.check()


# --------------------------------------------------------------------------------------------- release


def test_unplug_cleans_each_handle_and_returns_their_number(rig):
    """R30, A8: a handle is free after it was cleaned; a second unplug returns 0."""
    instance = new_instance()
    rig.plug(instance, fpga(2), R1)
    assert rig.simulated.is_dirty("0000:3b:00.1")
    rig.watch.arm(None)
    assert rig.unplug(instance) == 2
    assert [event[2] for event in rig.watch.events if event[1:2] == ("clean",)] == ["0000:3b:00.1", "0000:3b:00.2"]
    assert not rig.held.handles
    assert rig.unplug(instance) == 0
    rig.check()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_handle_whose_device_takes_long_is_released_but_not_free_until_it_is_clean(rig, restarts):
    """R30; issue 18.5: also if the same instance gets another device meanwhile, and after a restart."""
    rig.image(AES, visibility="private", region_uuid=TYPE_R1, function_uuid=AES)
    instance = new_instance()
    rig.plug(instance, fpga(2, function=AES), R1)
    rig.order(fault("clean", "continues", at="0000:3b:00.1"))
    assert rig.unplug(instance) == 2
    assert rig.plug(instance, gpu(), GPU) == [GPU]
    for _ in range(2):
        assert rig.held.handles["0000:3b:00.1"].state is HandleState.CLEANING
        assert rig.node(R1).inventories["CUSTOM_ACCELERATOR_FPGA"].reserved == 1
        assert rig.agent.run_once() == rig.clock.now() + CLEANING_PERIOD
        if restarts:
            rig.restart()
    rig.order()
    assert rig.agent.run_once() is None
    assert rig.held.states() == {GPU: HandleState.ATTACHED}
    assert rig.carries(R1) == "", "the private bitstream stays in the region that nobody uses"
    last = [one.what for one in rig.held.journal.pending if one.what.event is DeviceEvent.CLEAN][-1]
    assert (last.handle, last.who.instance_uuid, last.reason) == ("0000:3b:00.1", instance, "simulated; 0 s")
    assert rig.unplug(instance) == 1
    rig.check()


def test_a_handle_that_is_not_clean_in_time_is_quarantined(rig):
    instance = new_instance()
    rig.plug(instance, gpu(), GPU)
    rig.order(fault("clean", "continues"))
    rig.unplug(instance)
    rig.clock.sleep(601)
    rig.agent.run_once()
    assert rig.held.handles[GPU].state is HandleState.QUARANTINED
    assert rig.held.handles[GPU].reason == "not clean after 601 s, 600 s are allowed (simulated, 50 %)"


def test_a_handle_that_cannot_be_cleaned_is_quarantined(rig):
    """R30: if the driver fails, unplug raises an error, the handle is not free, and its unit is reserved."""
    instance = new_instance()
    rig.plug(instance, fpga(2), R1)
    rig.order(fault("clean", at="0000:3b:00.2", times=1))
    with pytest.raises(e.CleanFailed, match=r"0000:3b:00\.2"):
        rig.unplug(instance)
    assert rig.held.states() == {"0000:3b:00.2": HandleState.QUARANTINED}
    units = rig.node(R1).inventories["CUSTOM_ACCELERATOR_FPGA"]
    assert (units.total, units.reserved) == (2, 1)
    assert rig.unplug(instance) == 0
    rig.restart()
    assert rig.held.states() == {"0000:3b:00.2": HandleState.QUARANTINED}
    rig.agent.release_quarantined("0000:3b:00.2")
    assert not rig.held.handles
    rig.check()


def test_a_handle_stays_quarantined_if_it_cannot_be_cleaned_again(rig):
    instance = new_instance()
    rig.plug(instance, gpu(), GPU)
    rig.order(fault("clean"))
    with pytest.raises(e.CleanFailed):
        rig.unplug(instance)
    with pytest.raises(e.CleanFailed):
        rig.agent.release_quarantined(GPU)
    with pytest.raises(e.BadRequest):
        rig.agent.release_quarantined(GPUS[1])
    rig.check()
