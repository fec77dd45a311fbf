-- Statements of the migration driver.

-- name: schema_version
-- What the schema is, and the least that a library must know to use it.
SELECT version, oldest FROM tenure_schema_version
