"""Moorage: who may hold which part of which machine, from when to when.

See ARCHITECTURE.md for the layers; ``moorage.wiring`` builds a running plane from them.
"""
