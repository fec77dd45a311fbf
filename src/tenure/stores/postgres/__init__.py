"""The store in PostgreSQL: any number of hosts."""
