"""A server for each row of the provider table, as strict as the provider is."""
