-- The version of the schema, nodes, elections, terms and the fence, beside the application's own tables. Times are
-- seconds since 1970, to read: no decision rests on a stored time.

CREATE TABLE tenure_schema_version (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    version  INTEGER NOT NULL,   -- the newest migration that was applied
    oldest   INTEGER NOT NULL    -- the least version that a library must know to use the schema
);

INSERT INTO tenure_schema_version (one, version, oldest) VALUES (1, 0, 0);

CREATE TABLE tenure_epoch (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    number   INTEGER NOT NULL DEFAULT 0,
    max_ttl  REAL NOT NULL DEFAULT 60,
    -- The file that the epoch was written for. A copy or a restored backup is another file.
    boot_id  TEXT NOT NULL,
    device   TEXT NOT NULL,
    inode    TEXT NOT NULL
);

CREATE TABLE tenure_node (
    id         TEXT PRIMARY KEY,
    state      TEXT NOT NULL DEFAULT 'alive' CHECK (state IN ('alive', 'left', 'dead')),
    seq        INTEGER NOT NULL DEFAULT 0,
    asked      INTEGER NOT NULL DEFAULT 0,   -- a peer cannot read this node's lock file: it must beat in the database
    ttl        REAL NOT NULL,
    label      TEXT NOT NULL,
    joined_at  REAL NOT NULL,
    ended_at   REAL,
    ended_by   TEXT,
    last_seen  REAL,
    host       TEXT
) WITHOUT ROWID;

CREATE INDEX tenure_node_alive ON tenure_node (id) WHERE state = 'alive';
CREATE INDEX tenure_node_ended ON tenure_node (ended_at DESC, id) WHERE state <> 'alive';

CREATE TABLE tenure_election (
    name       TEXT PRIMARY KEY,
    term       INTEGER NOT NULL DEFAULT 0,
    holder     TEXT,
    state      TEXT NOT NULL DEFAULT 'released' CHECK (state IN ('held', 'released')),
    granted_at REAL,
    reason     TEXT,
    asked_term INTEGER,   -- the term whose holder is requested to resign
    UNIQUE (name, term)
) WITHOUT ROWID;

CREATE INDEX tenure_election_held ON tenure_election (holder) WHERE state = 'held';

CREATE TABLE tenure_term (
    election TEXT NOT NULL,
    number   INTEGER NOT NULL,
    node     TEXT NOT NULL,
    label    TEXT NOT NULL,
    began_at REAL NOT NULL,
    began_by TEXT NOT NULL,
    ended_at REAL,
    ended_by TEXT,
    gap      REAL,
    PRIMARY KEY (election, number)
) WITHOUT ROWID;

-- The fence is an insert into this view. It takes the write lock. If the term is over, it rolls the caller's whole
-- transaction back.
CREATE VIEW tenure_fence AS SELECT name, term, holder FROM tenure_election WHERE false;

CREATE TRIGGER tenure_fence_check INSTEAD OF INSERT ON tenure_fence
BEGIN
    SELECT RAISE(ROLLBACK, 'tenure: stale term')
     WHERE NOT EXISTS (SELECT 1 FROM tenure_election e
                        WHERE e.name = NEW.name AND e.term = NEW.term AND e.holder = NEW.holder AND e.state = 'held');
END;
