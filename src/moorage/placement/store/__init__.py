"""SQL: reads and writes of placement's tables, and the change log. No decisions."""
