"""Moves of servers between hosts: resize, migrate, live-migrate, evacuate, unshelve."""
