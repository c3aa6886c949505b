"""Capacity over time: the calendar, host selection, addresses, and what each resource type takes. Pure."""
