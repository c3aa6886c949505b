"""Keeps the forest of this process equal to the database, and commits every write."""
