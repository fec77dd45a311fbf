-- Keys under which something is done once: by a run (`run.once`), or by a command (`tenure once`). And the completion
-- of a run inside the caller's transaction.
--
-- The first release ends here. A library must know all of it.
-- oldest: 4

CREATE TABLE tenure_effect (
    run      INTEGER NOT NULL,
    key      TEXT NOT NULL,
    made_at  INTEGER NOT NULL,
    PRIMARY KEY (run, key)
) WITHOUT ROWID;

-- Not a foreign key: whether those are enforced is a setting of the connection that deletes.
CREATE TRIGGER tenure_effect_gone AFTER DELETE ON tenure_run
BEGIN
    DELETE FROM tenure_effect WHERE run = OLD.id;
END;

-- An insert into one of these views takes the write lock. If the attempt no longer has the run, it rolls the caller's
-- whole transaction back.
CREATE VIEW tenure_hold AS SELECT id AS run, token FROM tenure_run WHERE false;

CREATE TRIGGER tenure_hold_check INSTEAD OF INSERT ON tenure_hold
BEGIN
    SELECT RAISE(ROLLBACK, 'tenure: lost run')
     WHERE NOT EXISTS (SELECT 1 FROM tenure_run r WHERE r.id = NEW.run AND r.token = NEW.token AND r.state = 'running');
END;

CREATE VIEW tenure_completion AS SELECT id AS run, token, started_at, finished_at FROM tenure_run WHERE false;

CREATE TRIGGER tenure_completion_check INSTEAD OF INSERT ON tenure_completion
BEGIN
    SELECT RAISE(ROLLBACK, 'tenure: lost run')
     WHERE NOT EXISTS (SELECT 1 FROM tenure_run r WHERE r.id = NEW.run AND r.token = NEW.token AND r.state = 'running');
    UPDATE tenure_run
       SET state = 'succeeded', token = NULL, reason = '', asked_to_end = '', stopping = 0,
           started_at = coalesce(NEW.started_at, claimed_at), finished_at = NEW.finished_at
     WHERE id = NEW.run;
END;

CREATE TABLE tenure_guard (
    name  TEXT NOT NULL,
    key   TEXT NOT NULL,
    at    INTEGER NOT NULL,
    by    TEXT NOT NULL,
    until INTEGER,   -- the end of the last span that a command gave; NULL: it has no end
    PRIMARY KEY (name, key)
) WITHOUT ROWID;

CREATE INDEX tenure_guard_until ON tenure_guard (until) WHERE until IS NOT NULL;

-- What a person must be told. Of an application, kind and target, at most one is not closed.
CREATE TABLE tenure_alert (
    id          TEXT PRIMARY KEY,
    application TEXT NOT NULL,
    kind        TEXT NOT NULL,
    target      TEXT NOT NULL,   -- the job or the node; '': the application
    text        TEXT NOT NULL,
    since       INTEGER NOT NULL,
    first_seen  INTEGER NOT NULL,
    last_seen   INTEGER NOT NULL,   -- before it opens
    seen        INTEGER NOT NULL,
    missing     INTEGER NOT NULL,
    opened_at   INTEGER,         -- NULL: seen, and not told yet
    closed_at   INTEGER,
    version     INTEGER NOT NULL
) WITHOUT ROWID;

CREATE UNIQUE INDEX tenure_alert_open ON tenure_alert (application, kind, target) WHERE closed_at IS NULL;
CREATE INDEX tenure_alert_opened ON tenure_alert (application, opened_at) WHERE opened_at IS NOT NULL;
CREATE INDEX tenure_alert_closed ON tenure_alert (application, closed_at) WHERE closed_at IS NOT NULL;

-- An event of an alert on its way to one sink.
CREATE TABLE tenure_alert_message (
    number        INTEGER PRIMARY KEY AUTOINCREMENT,
    application   TEXT NOT NULL,
    alert         TEXT NOT NULL,
    event         TEXT NOT NULL,
    key           TEXT NOT NULL,   -- its id for the receiver
    sink          TEXT NOT NULL,
    made_at       INTEGER NOT NULL,
    claimed_by    TEXT NOT NULL DEFAULT '',
    claimed_until INTEGER,
    tries         INTEGER NOT NULL DEFAULT 0,
    error         TEXT NOT NULL DEFAULT '',
    sent_at       INTEGER,
    given_up      INTEGER NOT NULL DEFAULT 0,
    UNIQUE (key, sink)
);

CREATE INDEX tenure_alert_message_unsent ON tenure_alert_message (application, number)
 WHERE sent_at IS NULL AND given_up = 0;
CREATE INDEX tenure_alert_message_alert ON tenure_alert_message (alert, number);
