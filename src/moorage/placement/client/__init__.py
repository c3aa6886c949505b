"""Placement over its public API. Other packages import this folder and nothing else of placement."""
