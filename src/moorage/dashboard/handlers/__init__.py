"""One module per page: what was asked is read from the form or the address, services are asked, a view is shown."""
