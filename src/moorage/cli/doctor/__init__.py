"""`moorage doctor`: finds problems of an installation and says how to fix them. It changes nothing.

    configuration -> command -> each check -> findings (`finding`: problem, place, remedy) -> output, exit code

The checks: `software` (versions), `files` (permissions, disk space), `policy` (access rights), `machine` (what the
agent of a host needs: KVM, IOMMU, libvirt, rights), `devices` (accelerators of this host), `databases`, and
`endpoints` (APIs, certificates, clocks and the message bus).

Not here: contradictions between services, which `moorage audit` finds. Callers: the command line; `moorage agent join`
runs some of the checks.
"""
