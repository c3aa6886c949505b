"""Who is calling (embedded, http_basic, none, keystone) and what they may do (policy)."""
