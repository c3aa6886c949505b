"""What each row of a Blazar database becomes here, and what is reported about it. Pure."""
