"""Handlers of the Compute API, one module per resource; `views` has the shapes that several of them share.

A handler decodes the request, calls one use case of `ComputeService`, and builds the answer for the microversion.
"""
