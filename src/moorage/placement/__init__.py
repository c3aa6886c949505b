"""Resource providers, what they offer, who holds it, and who could: wire-compatible with OpenStack Placement.

Pure: `model`, `forest`, `request`, `candidates`, `claims`, `explain`. Only `client` is for others.
"""
