-- Keys under which something is done once: by a run (`run.once`), or by a command (`tenure once`).
--
-- The first release ends here. A library must know all of it.
-- oldest: 4

CREATE TABLE {schema}.effect (
    run     bigint NOT NULL REFERENCES {schema}.run ON DELETE CASCADE,
    key     text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),   -- to read
    PRIMARY KEY (run, key)
);

CREATE TABLE {schema}.guard (
    name  text NOT NULL,
    key   text NOT NULL,
    at    timestamptz NOT NULL,
    by    text NOT NULL,
    until timestamptz,   -- the end of the last span that a command gave; NULL: it has no end
    PRIMARY KEY (name, key)
);

CREATE INDEX guard_until ON {schema}.guard (until) WHERE until IS NOT NULL;
