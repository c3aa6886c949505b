"""The agent of one host: it publishes the host's provider tree in Placement and does the jobs of its servers.

::

    host_agent, host_reports   the process: start-up and heartbeat; reports about domains and failed devices
    control         the HTTP API for commands on this machine; reload of the provider configuration
    tracker | jobs  the provider tree in Placement | jobs that build, change, move and delete servers
    provider_config | virt   files of an operator | hypervisors: libvirt and a simulated one
    model           config drives and power states: values, no I/O
    tree            provider trees and the difference between two of them: values, no I/O

Each line may import the lines below it. `moorage.wiring.host` builds an agent; nothing else imports this package. It
reaches compute, accelerators and Placement through their clients. It has no database: state that must survive a restart
is in files, in Placement or in compute.
Not here: accelerator devices (`moorage.accelerator.host`), and the decision which host a server goes to.
"""
