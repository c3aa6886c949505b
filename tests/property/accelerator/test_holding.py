"""Random sequences of plugs, unplugs, faults, kills and restarts, compared with a simple model of a host.

The model has no steps and no checkpoint: a call takes effect completely or not at all. After every call the answer,
the checkpoint and the devices must agree with the model.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moorage.accelerator.model import errors as e
from moorage.accelerator.model.devices import HandleState
from moorage.core.errors import MoorageError
from tests.unit.accelerator.rig import AES, R1, R2, SHA, TYPE_R1, TYPE_R2, Killed, Rig, fault, fpga

HANDLES = {R1: ["0000:3b:00.1", "0000:3b:00.2"], R2: ["0000:3b:00.3"]}
#: (region, function) of each uploaded image -> whether the image is public.
IMAGES = {(R1, AES): True, (R1, SHA): False, (R2, AES): True}
INSTANCES = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(4)]

instances = st.sampled_from(INSTANCES)
regions = st.sampled_from([R1, R1, R2])
functions = st.sampled_from([None, AES, SHA])
amounts = st.sampled_from([1, 1, 2])


def outcome(call):
    """The result of `call`, or the class of its exception."""
    try:
        return call()
    except MoorageError as error:
        return type(error)


class Host(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.directory = Path(tempfile.mkdtemp(prefix="moorage-"))
        self.rig = Rig(self.directory)
        types = {R1: TYPE_R1, R2: TYPE_R2}
        for (region, function), public in IMAGES.items():
            visibility = "public" if public else "private"
            self.rig.image(function, visibility=visibility, region_uuid=types[region], function_uuid=function)
        self.held: dict[str, tuple] = {}  # instance -> (request, handles)
        self.quarantined: set[str] = set()
        self.loaded: dict[str, str | None] = {R1: None, R2: None}

    def teardown(self):
        shutil.rmtree(self.directory)

    # ------------------------------------------------------------------------------------------ the model

    def expected(self, instance, region, amount, function):
        """The PCI addresses that `plug` must return, or the class of the error that it must raise."""
        request = (region, amount, function)
        if instance in self.held:
            before, handles = self.held[instance]
            return handles if before == request else e.AlreadyPlugged
        if function is not None and (region, function) not in IMAGES:
            return e.BitstreamNotFound
        in_use = self.in_use(region)
        if function is not None and in_use and self.loaded[region] != function:
            return e.ConflictingBitstreams
        free = [handle for handle in HANDLES[region] if handle not in in_use and handle not in self.quarantined]
        return free[:amount] if len(free) >= amount else e.NoCapacity

    def in_use(self, region):
        return {handle for _, handles in self.held.values() for handle in handles if handle in HANDLES[region]}

    def note_plugged(self, instance, region, amount, function, handles):
        self.held[instance] = ((region, amount, function), handles)
        self.loaded[region] = function or self.loaded[region]

    def note_unplugged(self, instance):
        (region, _, _), handles = self.held.pop(instance)
        self.blank_private(region)
        return handles

    def blank_private(self, region):
        if not self.in_use(region) and not IMAGES.get((region, self.loaded[region]), True):
            self.loaded[region] = None

    # --------------------------------------------------------------------------------------------- calls

    def specs(self, amount, function):
        return fpga(amount, function=function) if function else fpga(amount)

    @rule(instance=instances, region=regions, amount=amounts, function=functions)
    def plug(self, instance, region, amount, function):
        expected = self.expected(instance, region, amount, function)
        answer = outcome(lambda: self.rig.plug(instance, self.specs(amount, function), region))
        assert answer == expected
        if isinstance(answer, list):
            self.note_plugged(instance, region, amount, function, answer)

    @rule(instance=instances)
    def unplug(self, instance):
        expected = len(self.note_unplugged(instance)) if instance in self.held else 0
        assert self.rig.unplug(instance) == expected

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def unplug_and_fail_to_clean(self, data):
        instance = data.draw(st.sampled_from(sorted(self.held)))
        broken = data.draw(st.sampled_from(self.held[instance][1]))
        self.rig.order(fault("clean", at=broken))
        assert outcome(lambda: self.rig.unplug(instance)) is e.CleanFailed
        self.rig.order()
        self.note_unplugged(instance)
        self.quarantined.add(broken)

    @precondition(lambda self: self.quarantined)
    @rule(data=st.data())
    def release_quarantined(self, data):
        handle = data.draw(st.sampled_from(sorted(self.quarantined)))
        self.rig.agent.release_quarantined(handle)
        self.quarantined.remove(handle)

    @rule(instance=instances, region=regions, amount=amounts, function=functions, dies=st.booleans())
    def plug_and_fail_to_program(self, instance, region, amount, function, dies):
        expected = self.expected(instance, region, amount, function)
        programs = (
            isinstance(expected, list) and instance not in self.held and function not in (None, self.loaded[region])
        )
        if not programs:
            return
        before = self.loaded[region]
        self.rig.order(fault("program", "dies" if dies else "fails", times=1))
        assert outcome(lambda: self.rig.plug(instance, self.specs(amount, function), region)) is e.ProgramFailed
        self.loaded[region] = None if dies else before
        self.blank_private(region)
        self.rig.order()

    @rule(instance=instances, region=regions, amount=amounts, function=functions, point=st.integers(0, 20))
    def plug_and_be_killed(self, instance, region, amount, function, point):
        expected = self.expected(instance, region, amount, function)
        before = self.loaded[region]
        self.rig.watch.arm(point)
        with contextlib.suppress(Killed, e.AlreadyPlugged, e.BitstreamNotFound, e.ConflictingBitstreams, e.NoCapacity):
            self.rig.plug(instance, self.specs(amount, function), region)
        self.rig.watch.arm(None)
        self.rig.restart()
        if instance in self.held:
            return
        if attachment := self.rig.held.attachments.get(instance):
            self.note_plugged(instance, region, amount, function, [one.pci_id for one in attachment.handles])
            assert self.held[instance][1] == expected
            return
        carried = self.function_on(region)
        assert carried in (before, function, None)
        self.loaded[region] = carried
        self.blank_private(region)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), point=st.integers(0, 12))
    def unplug_and_be_killed(self, data, point):
        instance = data.draw(st.sampled_from(sorted(self.held)))
        self.rig.watch.arm(point)
        with contextlib.suppress(Killed):
            self.rig.unplug(instance)
        self.rig.watch.arm(None)
        self.rig.restart()
        if instance not in self.rig.held.attachments:
            self.note_unplugged(instance)

    @rule()
    def restart(self):
        self.rig.restart()

    @rule()
    def discover(self):
        self.rig.agent.nodes()

    # ---------------------------------------------------------------------------------------- agreement

    def function_on(self, region):
        loaded = self.rig.held.region(region).bitstream
        return loaded.functions[0].id if loaded else None

    @invariant()
    def the_agent_and_the_model_agree(self):
        if not hasattr(self, "rig"):
            return
        self.rig.check()
        attached = {uuid: [one.pci_id for one in row.handles] for uuid, row in self.rig.held.attachments.items()}
        assert attached == {instance: handles for instance, (_, handles) in self.held.items()}
        states = self.rig.held.states()
        assert {handle for handle, state in states.items() if state is HandleState.QUARANTINED} == self.quarantined
        assert {region: self.function_on(region) for region in self.loaded} == self.loaded


Host.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestHost = Host.TestCase
