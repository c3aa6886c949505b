"""The agent of one host: start-up and background tasks."""
