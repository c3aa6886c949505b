"""Handlers of the pages, one module per group of pages.

A handler reads the query or form of a `PageRequest`, calls the services as the signed-in user, and returns a `Page` (a
template and its values) or a redirect. `moorage.dashboard.views` computes the values; `routes` maps paths to handlers.

Not here: HTML (`templates`), sign-in and form checks (`page_request`).
"""
