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

-- What a person must be told. Of an application, kind and target, at most one is not closed.
CREATE TABLE {schema}.alert (
    id          uuid PRIMARY KEY,
    application text NOT NULL,
    kind        text NOT NULL,
    target      text NOT NULL,   -- the job or the node; '': the application
    text        text NOT NULL,
    since       timestamptz NOT NULL,
    first_seen  timestamptz NOT NULL,
    last_seen   timestamptz NOT NULL,   -- before it opens
    seen        int NOT NULL,
    missing     int NOT NULL,
    opened_at   timestamptz,     -- NULL: seen, and not told yet
    closed_at   timestamptz,
    version     int NOT NULL
);

CREATE UNIQUE INDEX alert_open ON {schema}.alert (application, kind, target) WHERE closed_at IS NULL;
CREATE INDEX alert_opened ON {schema}.alert (application, opened_at) WHERE opened_at IS NOT NULL;
CREATE INDEX alert_closed ON {schema}.alert (application, closed_at) WHERE closed_at IS NOT NULL;

-- An event of an alert on its way to one sink.
CREATE TABLE {schema}.alert_message (
    number        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    application   text NOT NULL,
    alert         uuid NOT NULL REFERENCES {schema}.alert ON DELETE CASCADE,
    event         text NOT NULL CHECK (event IN ('opened', 'closed')),
    key           uuid NOT NULL,   -- its id for the receiver
    sink          text NOT NULL,
    made_at       timestamptz NOT NULL,
    claimed_by    text NOT NULL DEFAULT '',
    claimed_until timestamptz,
    tries         int NOT NULL DEFAULT 0,
    error         text NOT NULL DEFAULT '',
    sent_at       timestamptz,
    given_up      boolean NOT NULL DEFAULT false,
    UNIQUE (key, sink)
);

CREATE INDEX alert_message_unsent ON {schema}.alert_message (application, number)
 WHERE sent_at IS NULL AND NOT given_up;
CREATE INDEX alert_message_alert ON {schema}.alert_message (alert, number);
