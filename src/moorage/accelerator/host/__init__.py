"""The accelerator agent of one host: discovery, attach and detach, programming, its HTTP interface for os_acc."""
