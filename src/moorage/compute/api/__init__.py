"""HTTP: the Compute API's route table and policy rules, handlers and schemas."""
