"""A web client of the public APIs, like any other: pages rendered here, requests made with the signed-in user's token.

Not here: anything that the APIs do not offer. What a page shows is asked of a service, and what it does a service does.
"""
