"""Computes the values that templates show from the answers of the services, and request bodies from forms.

Pure: no requests, no clock. Each module belongs to one group of pages; `lease_form` is the form that creates and
changes leases. Called by the handlers.
"""
