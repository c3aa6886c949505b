"""Finds a host for servers and claims it: request, candidates, ranking, claim, commit."""
