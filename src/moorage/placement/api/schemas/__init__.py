"""JSON schemas of bodies, queries and answers.

The structure of a request's schema is part of the wire format, because error messages quote its paths and patterns.
"""
