"""Controls that a rehearsal has and a production plane has not: a clock that can be moved forwards."""
