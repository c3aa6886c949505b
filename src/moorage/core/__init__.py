"""Values and rules that every package shares: errors, the caller, clocks, ids, names, inventories, transition tables.

In it: the one error tree (`errors`), `Caller`, clocks and id generators to be passed as arguments, pauses that grow
(`backoff`), the rules for names of hosts, traits and resource classes (`names`), numbers and times read from text
(`parsing`), Placement's inventory fields, `Transitions` between states (`states`), `import_findings`, types of JSON
(`json`), and the hook that a thread calls before it blocks (`blocking_hook`).
Not in it: I/O, configuration, and anything that only one service knows. It needs the standard library only.
Callers: every other package.
"""
