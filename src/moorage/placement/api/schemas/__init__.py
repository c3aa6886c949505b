"""JSON schemas of bodies and queries. Their structure is on the wire: refusals quote paths and patterns."""
