"""Resource providers, what they offer, who holds it, and who could: wire-compatible with OpenStack Placement.

Pure: `model`, `forest`, `request`, `candidates`, `capacity_check`, `explanation`. Only `placement_client` is for others.
"""
