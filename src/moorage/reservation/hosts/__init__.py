"""Registered hosts: adding and removing them, watching them, and healing leases when one fails."""
