"""Provider configuration files checked and merged into a provider tree. Pure."""
