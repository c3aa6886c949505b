"""What a write may do: decided on a write set, in the order in which upstream checks. Pure."""
