"""Work for a host or a worker and its reports: the table, claims with fencing epochs, hints, and what runs them."""
