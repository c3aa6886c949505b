"""Runs the events of leases (start, before_end, end): claims them and executes their steps."""
