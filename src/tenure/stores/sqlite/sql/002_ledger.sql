-- Jobs, runs and what is kept of them. Instants are whole microseconds since 1970: exact, and quick to compare.

-- What nodes bring to applications. A set of functions is written once.
CREATE TABLE tenure_function_set (
    hash   TEXT PRIMARY KEY,
    names  TEXT NOT NULL   -- a JSON array
) WITHOUT ROWID;

CREATE TABLE tenure_node_facts (
    node         TEXT NOT NULL,
    application  TEXT NOT NULL,
    functions    TEXT NOT NULL,
    queues       TEXT,   -- a JSON array; NULL: all
    capacity     INTEGER NOT NULL,
    release      INTEGER NOT NULL,
    library      TEXT NOT NULL,
    tzdata       TEXT NOT NULL,
    PRIMARY KEY (node, application)
) WITHOUT ROWID;

-- A lane is a function and a queue: what a node may run is a set of lanes. A job has its lane while it is active, an open run has that of
-- its job; what nobody may begin, because its job is paused, has none. Lanes are never removed.
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
    queue         TEXT NOT NULL,      -- of the rules, as is …
    max_running   INTEGER,            -- … this: so that a claim finds by them
    lane          INTEGER,
    kwargs        TEXT NOT NULL,
    in_code       INTEGER NOT NULL,
    release       INTEGER NOT NULL,
    tzdata        TEXT NOT NULL,
    state         TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'removed')),
    generation    INTEGER NOT NULL DEFAULT 1,
    next_due      INTEGER,
    next_reading  TEXT,               -- release of the zone rules @ reading of the wall clock, where its trigger depends on a zone
    paused_until  INTEGER,
    paused_by     TEXT NOT NULL DEFAULT '',
    paused_why    TEXT NOT NULL DEFAULT '',
    since         INTEGER NOT NULL,
    kept_since    INTEGER NOT NULL DEFAULT 0,
    defined_at    INTEGER NOT NULL DEFAULT 0,   -- of what is removed or done: when code that defines it was last seen
    removed_at    INTEGER,
    removed_by    TEXT NOT NULL DEFAULT '',
    override      TEXT,               -- JSON: what the code says, and who changed the job when; NULL: the code says what is in force
    UNIQUE (application, name)
);

CREATE INDEX tenure_job_unplanned ON tenure_job (application, next_due) WHERE state = 'active' AND next_due IS NOT NULL;
CREATE INDEX tenure_job_reading ON tenure_job (application, next_reading) WHERE state = 'active' AND next_reading IS NOT NULL;
CREATE INDEX tenure_job_older_zones ON tenure_job (application, name) WHERE state = 'active' AND next_reading < tzdata;
CREATE INDEX tenure_job_function ON tenure_job (application, function) WHERE state <> 'removed';
CREATE INDEX tenure_job_over ON tenure_job (application, defined_at)   -- what may be forgotten one day
 WHERE state = 'removed' OR (state = 'active' AND next_due IS NULL AND trigger IS NOT NULL);
CREATE INDEX tenure_job_removed ON tenure_job (application, name) WHERE state = 'removed';
CREATE INDEX tenure_job_resumes ON tenure_job (application, paused_until) WHERE state = 'paused' AND paused_until IS NOT NULL;

-- Of jobs whose rows were deleted: up to when they may have run, and their highest generation. A new job goes on from there,
-- because it may have the name of one of them.
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
    until       INTEGER
);

CREATE INDEX tenure_change_job ON tenure_change (job);

-- AUTOINCREMENT: the number of a proposal that was deleted must not come back as another run.
CREATE TABLE tenure_run (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    job            INTEGER NOT NULL,
    application    TEXT NOT NULL,
    lane           INTEGER,
    key            TEXT NOT NULL,
    kind           TEXT NOT NULL,
    state          TEXT NOT NULL,
    generation     INTEGER NOT NULL,
    scheduled_for  INTEGER NOT NULL,
    due_at         INTEGER NOT NULL,
    expires_at     INTEGER,
    attempt        INTEGER NOT NULL DEFAULT 0,
    failures       INTEGER NOT NULL DEFAULT 0,
    losses         INTEGER NOT NULL DEFAULT 0,
    interruptions  INTEGER NOT NULL DEFAULT 0,
    stopping       INTEGER NOT NULL DEFAULT 0,   -- while it runs: its node was asked to stop
    token          TEXT,
    node           TEXT,
    label          TEXT NOT NULL DEFAULT '',
    claimed_at     INTEGER,
    started_at     INTEGER,
    finished_at    INTEGER,
    reason         TEXT NOT NULL DEFAULT '',
    asked_to_end   TEXT NOT NULL DEFAULT '',
    count          INTEGER NOT NULL DEFAULT 1,
    until          INTEGER,
    by             TEXT NOT NULL DEFAULT '',
    kwargs         TEXT,
    UNIQUE (job, key),
    CHECK ((token IS NOT NULL) = (state = 'running'))
);

CREATE INDEX tenure_run_due ON tenure_run (lane, due_at) WHERE state = 'pending' AND lane IS NOT NULL;
CREATE INDEX tenure_run_expires ON tenure_run (lane, expires_at) WHERE state = 'pending' AND lane IS NOT NULL AND expires_at IS NOT NULL;
CREATE INDEX tenure_run_waiting ON tenure_run (application, job, due_at) WHERE state = 'waiting';
CREATE INDEX tenure_run_waits ON tenure_run (lane, job) WHERE state = 'waiting' AND lane IS NOT NULL;
CREATE INDEX tenure_run_running ON tenure_run (application, node) WHERE state = 'running';
-- What takes a place under `max_running`.
CREATE INDEX tenure_run_began ON tenure_run (job) WHERE state = 'running' OR (state = 'pending' AND attempt > 0);
-- Spelt with OR: SQLite does not see that one state is among several of an IN.
CREATE INDEX tenure_run_open ON tenure_run (job, scheduled_for) WHERE state = 'pending' OR state = 'waiting' OR state = 'running';
CREATE INDEX tenure_run_of_job ON tenure_run (job, scheduled_for);
-- By state, so that the few that failed are found among the many that did not.
CREATE INDEX tenure_run_of_application ON tenure_run (application, state, scheduled_for)
 WHERE state <> 'pending' AND state <> 'waiting' AND state <> 'running';
CREATE INDEX tenure_run_several ON tenure_run (job, until) WHERE until IS NOT NULL;

-- Keys that somebody gave to runs which retention has removed.
CREATE TABLE tenure_kept_key (
    job            INTEGER NOT NULL,
    key            TEXT NOT NULL,
    application    TEXT NOT NULL,
    run            INTEGER NOT NULL,
    state          TEXT NOT NULL,
    scheduled_for  INTEGER NOT NULL,
    started_at     INTEGER,
    finished_at    INTEGER,
    digest         TEXT NOT NULL,     -- of the arguments
    PRIMARY KEY (job, key)
) WITHOUT ROWID;

CREATE INDEX tenure_kept_key_old ON tenure_kept_key (application, scheduled_for);

-- One row for what one attempt logged: a JSON array of lines.
CREATE TABLE tenure_log (
    run    INTEGER NOT NULL,
    began  INTEGER NOT NULL,   -- its attempt
    place  INTEGER NOT NULL,
    line   TEXT NOT NULL,
    PRIMARY KEY (run, began, place)
);

CREATE TABLE tenure_guard (
    name  TEXT NOT NULL,
    key   TEXT NOT NULL,
    at    INTEGER NOT NULL,
    by    TEXT NOT NULL,
    until INTEGER,   -- when the last span that was asked for is over; NULL: for ever
    PRIMARY KEY (name, key)
) WITHOUT ROWID;

CREATE INDEX tenure_guard_until ON tenure_guard (until) WHERE until IS NOT NULL;
