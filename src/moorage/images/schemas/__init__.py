"""What images must look like; also served at ``/v2/schemas``."""
