"""What can be reserved: one module per type, `base` says what each must tell."""
