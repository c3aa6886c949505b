"""HTTP: the Accelerator API v2 with our routes for hosts, handlers and schemas."""
