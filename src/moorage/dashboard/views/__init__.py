"""Computes the values that templates show from the answers of the services, and request bodies from forms.

    answers of services -> a view -> values -> a template;    a form -> `lease_form` -> a request body

Pure: no requests, no clock. Not here: the requests themselves (`dashboard.handlers`) and HTML (`templates`). Each
module belongs to one group of pages; `lease_form` is the form that creates and changes leases. Called by the handlers.
"""
