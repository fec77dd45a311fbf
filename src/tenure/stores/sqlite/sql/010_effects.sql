-- What runs committed under a key, and the completion of a run inside the caller's transaction.

CREATE TABLE tenure_effect (
    run      INTEGER NOT NULL,
    key      TEXT NOT NULL,
    made_at  INTEGER NOT NULL,
    PRIMARY KEY (run, key)
) WITHOUT ROWID;

-- Not a foreign key: whether these count is a setting of the connection that deletes.
CREATE TRIGGER tenure_effect_gone AFTER DELETE ON tenure_run
BEGIN
    DELETE FROM tenure_effect WHERE run = OLD.id;
END;

-- An insert into one of these views takes the write lock and, where the run is not this attempt's any more, rolls the caller's whole
-- transaction back.
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
