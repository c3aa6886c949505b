"""Where the addresses of guests are learned from, and what a guest agent can do about it: nothing to other guests.

The answers are libvirt's in form; `test_login` has those of a real libvirt and its dnsmasq.
"""

from contextlib import contextmanager

import pytest

from moorage.agent.model import DomainPowerState
from moorage.agent.virt.domain_xml import GuestPaths, render_domain
from moorage.agent.virt.driver import Domain, DomainInterface, DomainSpec

libvirt = pytest.importorskip("libvirt", reason="libvirt's Python bindings are not installed")

# After the bindings, without which they cannot be imported.
from moorage.agent.virt.libvirt_domain import AddressAnswer, learned_addresses  # noqa: E402
from moorage.agent.virt.libvirt_driver import LibvirtDriver  # noqa: E402
from moorage.agent.virt.libvirt_node import LibvirtSettings  # noqa: E402

A, B = "fa:16:3e:00:00:01", "fa:16:3e:00:00:02"
LEASE = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE
AGENT = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT
ARP = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP


class Error(libvirt.libvirtError):
    def __init__(self, code):
        super().__init__("refused")
        self._code = code

    def get_error_code(self):
        return self._code


class Guest:
    """`answers`: {source: {MAC address: addresses}, or an error's code}; others say nothing."""

    def __init__(self, answers, *, agent="connected", is_active=True):
        self._answers, self._agent, self._is_active = answers, agent, is_active
        self.asked = []

    def isActive(self):
        return self._is_active

    def XMLDesc(self, flags=0):
        target = f'<target type="virtio" name="org.qemu.guest_agent.0" state="{self._agent}"/>'
        return f"<domain><devices><channel>{target}</channel></devices></domain>"

    def agentSetResponseTimeout(self, timeout, flags=0):
        return 0

    def interfaceAddresses(self, source, flags=0):
        self.asked.append(source)
        answer = self._answers.get(source, {})
        if isinstance(answer, int):
            raise Error(answer)
        return {
            f"eth{at}": {"hwaddr": mac, "addrs": addresses and [{"addr": each, "type": 0} for each in addresses]}
            for at, (mac, addresses) in enumerate(answer.items())
        }


def ask(answers, macs=(A,), *, ask_agent=True, **state):
    domain = Guest(answers, **state)
    return learned_addresses(domain, macs, ask_agent=ask_agent), domain.asked


def test_leases_come_before_the_agent_and_the_agent_before_the_arp_table():
    everywhere = {LEASE: {A: ["192.0.2.1"]}, AGENT: {A: ["192.0.2.2"], B: ["192.0.2.3"]}, ARP: {B: ["192.0.2.4"]}}
    assert ask(everywhere) == (AddressAnswer({A: ("192.0.2.1",)}), [LEASE])
    assert ask(everywhere, (A, B)) == (AddressAnswer({A: ("192.0.2.1",), B: ("192.0.2.3",)}), [LEASE, AGENT])
    assert ask({ARP: {A: ["192.0.2.5"]}}) == (AddressAnswer({A: ("192.0.2.5",)}), [LEASE, AGENT, ARP])
    assert ask({AGENT: {A: ["192.0.2.6"]}}, agent="disconnected") == (AddressAnswer({}), [LEASE, ARP])


def test_only_addresses_for_other_machines_and_of_the_guests_own_interfaces_count():
    said = {
        None: ["192.0.2.9"],
        B: ["192.0.2.8"],
        A.upper(): [
            "127.0.0.1",
            "169.254.1.1",
            "fe80::1",
            "::1",
            "224.0.0.1",
            "0.0.0.0",
            "x",
            "2001:DB8::1",
            "192.0.2.7",
        ],
    }
    assert ask({AGENT: said})[0].by_mac == {A: ("2001:db8::1", "192.0.2.7")}
    assert ask({AGENT: {A: None}})[0].by_mac == {}
    assert len(ask({AGENT: {A: [f"192.0.2.{at}" for at in range(1, 200)]}})[0].by_mac[A]) == 8


def test_a_domain_that_is_off_has_no_address():
    assert ask({LEASE: {A: ["192.0.2.1"]}}, is_active=False) == (AddressAnswer({}), [])


@pytest.mark.parametrize("code", [libvirt.VIR_ERR_AGENT_UNRESPONSIVE, libvirt.VIR_ERR_INTERNAL_ERROR, 12345])
def test_an_agent_that_fails_is_reported_as_failed_and_leaves_what_was_known(code):
    assert ask({AGENT: code})[0] == AddressAnswer(None, agent_failed=True)
    assert ask({AGENT: code, ARP: {A: ["192.0.2.1"]}})[0] == AddressAnswer({A: ("192.0.2.1",)}, agent_failed=True)
    assert ask({AGENT: code}, ask_agent=False) == (AddressAnswer(None), [LEASE, ARP])


def test_a_libvirt_without_a_source_is_asked_for_the_others():
    assert ask({LEASE: libvirt.VIR_ERR_NO_SUPPORT, ARP: {A: ["192.0.2.1"]}})[0].by_mac == {A: ("192.0.2.1",)}


class Connection:
    """One guest, whose definition is `render_domain`'s."""

    def __init__(self, domain, spec):
        self._domain = domain
        definition = render_domain(spec, parts=GuestPaths(guest_agent=True)).decode()
        text = definition.replace('name="org.qemu.guest_agent.0"', 'name="org.qemu.guest_agent.0" state="connected"')
        domain.XMLDesc = lambda flags=0: text

    @contextmanager
    def use(self):
        yield self

    def lookupByUUIDString(self, uuid):
        return self._domain


def test_an_agent_that_failed_is_not_asked_again_for_five_minutes(clock):
    uuid = "aaaaaaaa-0000-4000-8000-000000000000"
    spec = DomainSpec(uuid, "web", 1, 64, interfaces=(DomainInterface(A, "nat", is_bridge=False),))
    domain = Guest({AGENT: libvirt.VIR_ERR_AGENT_UNRESPONSIVE})
    driver = LibvirtDriver(LibvirtSettings("metal-1"), Connection(domain, spec), None, clock)
    known = {uuid: Domain(spec, DomainPowerState.RUNNING)}

    def asks_agent():
        domain.asked.clear()
        assert driver.learned_addresses(known) == {}, "what was known stays"
        return AGENT in domain.asked

    assert asks_agent()
    clock.sleep(299)
    assert not asks_agent()
    clock.sleep(2)
    assert asks_agent()
    domain._answers = {AGENT: {A: ["192.0.2.1"]}}
    clock.sleep(301)
    assert driver.learned_addresses(known) == {uuid: {A: ("192.0.2.1",)}}
