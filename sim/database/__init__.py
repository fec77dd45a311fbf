"""A model of the database: rows, statements, locks and sessions."""
