"""The agent of one host: its provider tree in Placement, its servers, its jobs."""
