"""Allocation candidates: from a query to the providers that can serve it together. Pure."""
