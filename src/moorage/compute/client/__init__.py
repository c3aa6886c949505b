"""Compute over its public API. Other packages import this folder and nothing else of compute."""
