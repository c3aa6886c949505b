"""SQL of the accelerator database."""
