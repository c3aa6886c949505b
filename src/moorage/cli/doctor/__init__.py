"""`moorage doctor`: finds problems of an installation and says how to fix them. It changes nothing.

`command` runs the checks: `software` (versions), `files` (permissions, disk space), `policy` (access rights),
`machine` (what the agent of a host needs: KVM, IOMMU, libvirt, rights), `devices` (accelerators of this host),
`databases`, and `endpoints` (APIs, certificates, clocks and the message bus).
Each check takes the configuration and yields findings (`finding`).

Not here: contradictions between services, which `moorage audit` finds.
"""
