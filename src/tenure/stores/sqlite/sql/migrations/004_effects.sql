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
