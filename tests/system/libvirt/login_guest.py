"""A guest that people log in to: Debian's kernel, busybox and Dropbear, configured by its config drive as cloud-init does.

It takes from the drive the addresses of its interfaces, its name, and the public keys of root. On the console it prints
a line each: DRIVE <file>, ADDRESS <interface> <address>, HOSTKEY <its public key>, READY. Passwords are refused.

With the kernel argument ``claim=<address>`` it asks no DHCP server, and its guest agent, a few lines of shell, says that
it has this address. ``virtio_net:csum=0,gso=0`` gives a module these parameters.
"""

from pathlib import Path

from tests.debian import linked_libraries, unpacked
from tests.system.libvirt import guest

#: For interfaces, and sockets that see whole packets (the DHCP client's), besides disks and config drives.
_MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_console", "af_packet", "isofs")
_PACKAGES = ("dropbear-bin",)

#: Prints the values of a JSON document as lines such as ``networks.0.routes.0.gateway=192.0.2.1``.
_FLATTEN = r"""
{ s = s $0 "\n" }
END {
    while (match(s, /"([^"\\]|\\.)*"|[][{},:]|[^][{},:" \t\n]+/)) {
        t = substr(s, RSTART, RLENGTH); s = substr(s, RSTART + RLENGTH)
        if (t == "{" || t == "[") { d++; kind[d] = t; key[d] = 0; names = t == "{" }
        else if (t == "}" || t == "]") { d--; names = 0 }
        else if (t == ",") { if (kind[d] == "[") key[d]++; else names = 1 }
        else if (t == ":") names = 0
        else {
            sub(/^"/, "", t); sub(/(\\n)*"$/, "", t)
            if (names) { key[d] = t; continue }
            for (i = 1; i <= d; i++) printf "%s%s", key[i], i < d ? "." : "="
            print t
        }
    }
}
"""

#: What the DHCP client calls.
_LEASE = r"""#!/bin/sh
case $1 in bound|renew)
    ip addr replace $ip/$mask dev $interface
    [ -z "$router" ] || ip route replace default via $router
    echo "ADDRESS $interface $ip" >/dev/console;;
esac
"""

_INIT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root
mkdir -p /proc /sys /dev /mnt /tmp /var/log $HOME/.ssh /etc
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts; mount -t devpts pts /dev/pts
for m in MODULES; do
    insmod /lib/$m.ko $(sed -n "s/.*$m:\([a-z0-9=,]*\).*/\1/p" /proc/cmdline | tr , ' ')
done
say() { echo "$@" >/dev/console; }
echo "root:x:0:0:root:$HOME:/bin/sh" >/etc/passwd

for d in /dev/vd?; do mount -t iso9660 -o ro $d /mnt 2>/dev/null && break; done
for name in meta_data network_data; do
    awk -f /flatten /mnt/openstack/latest/$name.json >/tmp/$name
    say "DRIVE $name $(wc -l </tmp/$name)"
done
meta() { sed -n "s/^$1=//p" /tmp/meta_data; }
net() { sed -n "s/^$1=//p" /tmp/network_data; }

hostname "$(meta hostname)"
meta 'public_keys\.[^=]*' >$HOME/.ssh/authorized_keys
chmod 700 $HOME $HOME/.ssh; chmod 600 $HOME/.ssh/authorized_keys

claim=$(sed -n 's/.*claim=\([0-9.]*\).*/\1/p' /proc/cmdline)
answer() {
    mac=$(cat /sys/class/net/eth0/address)
    ip='{"ip-address-type": "ipv4", "ip-address": "'$claim'", "prefix": 24}'
    while true; do
        while read -r line <&3; do
            case $line in
                *guest-sync*) echo "{\"return\": $(echo "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')}" >&3;;
                *guest-network-get-interfaces*)
                    echo '{"return": [{"name": "eth0", "hardware-address": "'$mac'", "ip-addresses": ['"$ip"']}]}' >&3;;
                *) echo '{"error": {"class": "CommandNotFound", "desc": "this guest has no such command"}}' >&3;;
            esac
        done
        sleep 1
    done
}
for p in /sys/class/virtio-ports/*; do
    [ "$(cat $p/name 2>/dev/null)" != org.qemu.guest_agent.0 ] || { exec 3<>/dev/${p##*/}; answer & }
done

ip link set lo up
device_of() { # the interface with the MAC address of a link
    i=0
    while [ -n "$(net links.$i.id)" ] && [ "$(net links.$i.id)" != "$1" ]; do i=$((i + 1)); done
    for d in /sys/class/net/*; do
        [ "$(cat $d/address)" != "$(net links.$i.ethernet_mac_address)" ] || echo ${d##*/}
    done
}
n=0
while [ -n "$(net networks.$n.id)" ]; do
    device=$(device_of "$(net networks.$n.link)")
    ip link set $device up
    case $(net networks.$n.type) in
        ipv4)
            address=$(net networks.$n.ip_address)
            ifconfig $device $address netmask $(net networks.$n.netmask)
            gateway=$(net networks.$n.routes.0.gateway)
            [ -z "$gateway" ] || ip route add default via $gateway
            arping -q -U -c 1 -I $device $address & # others may remember who had the address before
            say "ADDRESS $device $address";;
        ipv4_dhcp) [ -n "$claim" ] || udhcpc -b -q -t 30 -T 1 -i $device -s /lease -x hostname:$(hostname) >/dev/null 2>&1;;
    esac
    n=$((n + 1))
done
for n in 0 1 2 3 4; do
    server=$(net services.$n.address)
    [ -z "$server" ] || echo "nameserver $server" >>/etc/resolv.conf
done

mkdir -p /etc/dropbear
say "HOSTKEY $(dropbearkey -t ed25519 -f /etc/dropbear/key 2>/dev/null | grep ^ssh-)"
dropbear -s -r /etc/dropbear/key
say READY
while true; do sleep 1000; done
"""


def initial_file_system() -> bytes:
    """Raises `ServerMissing` if Debian's packages cannot be had."""
    place = unpacked("dropbear", *_PACKAGES)
    programs = {"dropbear": place / "usr/sbin/dropbear", "dropbearkey": place / "usr/bin/dropbearkey"}
    files = {f"bin/{name}": path.read_bytes() for name, path in programs.items()}
    for path in {found for program in programs.values() for found in linked_libraries(program, place)}:
        # The loader is where the programs name it, and finds the libraries below /lib.
        name = str(path).lstrip("/") if path.name.startswith("ld-") else f"lib/{path.name}"
        files[name] = Path(path).read_bytes()
    files |= {"flatten": _FLATTEN.encode(), "lease": _LEASE.encode()}
    return guest.archive(guest.kernel(), _INIT, _MODULES, programs=files)
