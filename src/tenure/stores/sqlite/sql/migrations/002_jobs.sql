-- What nodes can run, and jobs. Instants are whole microseconds since 1970: exact, and quick to compare.

-- A set of functions, written once and shared by all nodes that have it.
CREATE TABLE tenure_function_set (
    hash   TEXT PRIMARY KEY,
    names  TEXT NOT NULL   -- a JSON array
) WITHOUT ROWID;

-- What a node can run for an application.
CREATE TABLE tenure_node_facts (
    node         TEXT NOT NULL,
    application  TEXT NOT NULL,
    functions    TEXT NOT NULL,
    queues       TEXT,   -- a JSON array; NULL: all
    capacity     INTEGER NOT NULL,
    release      INTEGER NOT NULL,
    library      TEXT NOT NULL,
    tzdata       TEXT NOT NULL,
    -- To read, and to notice a deploy: the machine, a digest of what its functions take, and how far its clock is
    -- ahead.
    host         TEXT NOT NULL DEFAULT '',
    signatures   TEXT NOT NULL DEFAULT '',
    clock_offset REAL,
    unfit        TEXT NOT NULL DEFAULT '',   -- JSON: see `core/unfit.py`
    PRIMARY KEY (node, application)
) WITHOUT ROWID;

-- A lane is a function and a queue; a node may run a set of lanes. An active job has a lane, and its open runs have the
-- same one. Runs of a paused job have none, so no node can begin them. Lanes are never removed.
CREATE TABLE tenure_lane (
    id           INTEGER PRIMARY KEY,
    application  TEXT NOT NULL,
    function     TEXT NOT NULL,
    queue        TEXT NOT NULL,
    UNIQUE (application, function, queue)
);

CREATE TABLE tenure_job (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    application   TEXT NOT NULL,
    name          TEXT NOT NULL,
    function      TEXT NOT NULL,
    trigger       TEXT,
    rules         TEXT NOT NULL,
    queue         TEXT NOT NULL,      -- from the rules, for claims to search by
    max_running   INTEGER,            -- likewise
    pool          TEXT,               -- likewise
    after         TEXT,               -- likewise: the job that it follows
    followed      INTEGER NOT NULL DEFAULT 0,   -- a job follows it, or has followed it: its runs owe runs of that
    lane          INTEGER,
    kwargs        TEXT NOT NULL,
    in_code       INTEGER NOT NULL,
    release       INTEGER NOT NULL,
    tzdata        TEXT NOT NULL,
    state         TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'removed')),
    generation    INTEGER NOT NULL DEFAULT 1,
    next_due      INTEGER,
    next_reading  TEXT,               -- 'tzdata release@wall clock' of next_due, if the trigger depends on a zone
    paused_until  INTEGER,
    paused_by     TEXT NOT NULL DEFAULT '',
    paused_why    TEXT NOT NULL DEFAULT '',
    since         INTEGER NOT NULL,
    kept_since    INTEGER NOT NULL DEFAULT 0,
    defined_at    INTEGER NOT NULL DEFAULT 0,   -- if removed or done: when code last defined it
    removed_at    INTEGER,
    removed_by    TEXT NOT NULL DEFAULT '',
    override      TEXT,               -- JSON: what the code says, who changed the job when; NULL: the code is in force
    UNIQUE (application, name)
);

CREATE INDEX tenure_job_unplanned ON tenure_job (application, next_due)
 WHERE state = 'active' AND next_due IS NOT NULL;
CREATE INDEX tenure_job_reading ON tenure_job (application, next_reading)
 WHERE state = 'active' AND next_reading IS NOT NULL;
CREATE INDEX tenure_job_older_zones ON tenure_job (application, name) WHERE state = 'active' AND next_reading < tzdata;
CREATE INDEX tenure_job_function ON tenure_job (application, function) WHERE state <> 'removed';
CREATE INDEX tenure_job_over ON tenure_job (application, defined_at)   -- those that retention may delete one day
 WHERE state = 'removed' OR (state = 'active' AND next_due IS NULL AND trigger IS NOT NULL);
CREATE INDEX tenure_job_removed ON tenure_job (application, name) WHERE state = 'removed';
CREATE INDEX tenure_job_resumes ON tenure_job (application, paused_until)
 WHERE state = 'paused' AND paused_until IS NOT NULL;

CREATE INDEX tenure_job_after ON tenure_job (application, after) WHERE after IS NOT NULL;
CREATE INDEX tenure_job_pool ON tenure_job (application, pool) WHERE pool IS NOT NULL;

-- The sizes of pools that were set. A pool without a row has size 1.
CREATE TABLE tenure_pool (
    application  TEXT NOT NULL,
    name         TEXT NOT NULL,
    size         INTEGER NOT NULL,
    PRIMARY KEY (application, name)
) WITHOUT ROWID;

-- About jobs whose rows were deleted: until when they may have run, and their highest generation. A new job may have
-- the name of a deleted one, and continues from here.
CREATE TABLE tenure_forgotten (
    application  TEXT PRIMARY KEY,
    kept_since   INTEGER NOT NULL,
    generation   INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE tenure_change (
    id          INTEGER PRIMARY KEY,
    job         INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    what        TEXT NOT NULL,
    trigger     TEXT,
    by          TEXT NOT NULL,
    why         TEXT NOT NULL,
    until       INTEGER,
    after       TEXT   -- the job that it follows from here on
);

CREATE INDEX tenure_change_job ON tenure_change (job);

-- What people did, and from where. Ids are never used again: they tell how many actions are newer.
CREATE TABLE tenure_action (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    at           INTEGER NOT NULL,
    application  TEXT NOT NULL,   -- '': an election that belongs to no application
    by           TEXT NOT NULL,
    what         TEXT NOT NULL,
    target       TEXT NOT NULL,   -- the job, or the election
    run          INTEGER,
    why          TEXT NOT NULL,
    origin       TEXT NOT NULL,
    detail       TEXT NOT NULL
);

CREATE INDEX tenure_action_application ON tenure_action (application, id);
CREATE INDEX tenure_action_target ON tenure_action (application, target, id);
