"""Use cases of the central accelerator service."""
