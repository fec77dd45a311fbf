-- Runs, their logs, and the keys that outlive them.

-- AUTOINCREMENT: the id of a planned run that was deleted must not return as another run.
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
    stopping       INTEGER NOT NULL DEFAULT 0,   -- while it runs: its node was told to stop
    token          TEXT,
    node           TEXT,
    label          TEXT NOT NULL DEFAULT '',
    claimed_at     INTEGER,
    started_at     INTEGER,
    finished_at    INTEGER,
    reason         TEXT NOT NULL DEFAULT '',
    asked_to_end   TEXT NOT NULL DEFAULT '',
    outcome        TEXT,                         -- between two attempts: how the last one ended
    result         TEXT,                         -- what the body returned; seldom anything
    count          INTEGER NOT NULL DEFAULT 1,
    until          INTEGER,
    by             TEXT NOT NULL DEFAULT '',
    kwargs         TEXT,
    looks          INTEGER,   -- attempts that raised NotYet; NULL: none
    looking_since  INTEGER,   -- when the first of these began
    last_look      INTEGER,   -- the number of the last of these
    reopened       INTEGER NOT NULL DEFAULT 0,   -- its attempts when it was last retried or backfilled
    slot           TEXT,
    pool           TEXT,      -- in which it waits for a place, or has one
    traceparent    TEXT,      -- the span that requested it
    owes           INTEGER NOT NULL DEFAULT 0,   -- once it is final, followers are owed their runs: see `follow_up`
    UNIQUE (job, key),
    CHECK ((token IS NOT NULL) = (state = 'running'))
);

CREATE INDEX tenure_run_due ON tenure_run (lane, due_at) WHERE state = 'pending' AND lane IS NOT NULL;
CREATE INDEX tenure_run_expires ON tenure_run (lane, expires_at)
 WHERE state = 'pending' AND lane IS NOT NULL AND expires_at IS NOT NULL;
CREATE INDEX tenure_run_waiting ON tenure_run (application, job, due_at) WHERE state = 'waiting';
CREATE INDEX tenure_run_waits ON tenure_run (lane, job)
 WHERE state = 'waiting' AND lane IS NOT NULL AND pool IS NULL;
CREATE INDEX tenure_run_running ON tenure_run (application, node) WHERE state = 'running';
-- Runs that take a place under `max_running`.
CREATE INDEX tenure_run_began ON tenure_run (job)
 WHERE state = 'running' OR (state = 'pending' AND attempt > reopened) OR (state = 'waiting' AND pool IS NOT NULL);
-- Who has a place in a pool, and who waits for one.
CREATE INDEX tenure_run_pool ON tenure_run (application, pool, state, due_at) WHERE pool IS NOT NULL;
-- Written with OR: SQLite does not infer that one state is among those of an IN.
CREATE INDEX tenure_run_open ON tenure_run (job, scheduled_for)
 WHERE state = 'pending' OR state = 'waiting' OR state = 'running';
CREATE INDEX tenure_run_of_job ON tenure_run (job, scheduled_for);
-- By state, to find the few that failed among the many that did not.
CREATE INDEX tenure_run_of_application ON tenure_run (application, state, scheduled_for)
 WHERE state <> 'pending' AND state <> 'waiting' AND state <> 'running';
-- Which followers are owed runs. A run of a job without followers is in here at no time.
CREATE INDEX tenure_run_owed ON tenure_run (application, job, id)
 WHERE owes AND state <> 'pending' AND state <> 'waiting' AND state <> 'running';
-- Runs that were requested with arguments of their own and have not begun.
CREATE INDEX tenure_run_arguments ON tenure_run (application, id)
 WHERE kwargs IS NOT NULL AND (state = 'pending' OR state = 'waiting');
CREATE INDEX tenure_run_several ON tenure_run (job, until) WHERE until IS NOT NULL;

-- Of each slot, at most one run that no node has claimed.
CREATE UNIQUE INDEX tenure_run_slot ON tenure_run (application, slot, job)
 WHERE slot IS NOT NULL AND attempt = 0 AND (state = 'pending' OR state = 'waiting');

-- Keys that users gave to runs which retention has deleted since.
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

-- Attempts that others have followed. The last attempt of a run is in the run's row: see `keep_attempts`.
CREATE TABLE tenure_attempt (
    run          INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    count        INTEGER NOT NULL DEFAULT 1,   -- how many looks this stands for; their last has this number
    label        TEXT NOT NULL,      -- of its node
    claimed_at   INTEGER,
    started_at   INTEGER,
    finished_at  INTEGER,
    outcome      TEXT NOT NULL,
    error        TEXT NOT NULL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;

CREATE TABLE tenure_log (
    run      INTEGER NOT NULL,
    attempt  INTEGER NOT NULL,
    place    INTEGER NOT NULL,   -- the number of the line within the attempt; a gap: lines were dropped
    at       INTEGER NOT NULL,
    line     TEXT NOT NULL,
    PRIMARY KEY (run, attempt, place)
);

-- How far the bodies of runs said they were, the last time. Written while a body runs, so apart from `tenure_run`.
CREATE TABLE tenure_progress (
    run      INTEGER PRIMARY KEY,
    attempt  INTEGER NOT NULL,
    done     REAL NOT NULL,
    total    REAL,
    text     TEXT NOT NULL,
    at       INTEGER NOT NULL
);

-- Figures of a job in an hour: see `core/figures.py`. Two rows: of the runs that are there, counted anew while anything
-- may change; and of those that retention has removed.
CREATE TABLE tenure_job_hour (
    job          INTEGER NOT NULL,
    application  TEXT NOT NULL,
    hour         INTEGER NOT NULL,
    removed      INTEGER NOT NULL,   -- 1: of runs that are not there any more
    succeeded    INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    lost         INTEGER NOT NULL,
    cancelled    INTEGER NOT NULL,
    skipped      INTEGER NOT NULL,
    missed       INTEGER NOT NULL,
    open         INTEGER NOT NULL,
    late_total   INTEGER NOT NULL,   -- microseconds
    late_most    INTEGER NOT NULL,
    late         TEXT NOT NULL,      -- 'bucket:runs,…'
    took_total   INTEGER NOT NULL,
    took_most    INTEGER NOT NULL,
    took         TEXT NOT NULL,
    PRIMARY KEY (job, hour, removed)
) WITHOUT ROWID;

CREATE INDEX tenure_job_hour_of_application ON tenure_job_hour (application, hour);
CREATE INDEX tenure_job_hour_open ON tenure_job_hour (job) WHERE open > 0;

-- The same of a day, of which nothing changes any more.
CREATE TABLE tenure_job_day (
    job          INTEGER NOT NULL,
    application  TEXT NOT NULL,
    day          INTEGER NOT NULL,
    succeeded    INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    lost         INTEGER NOT NULL,
    cancelled    INTEGER NOT NULL,
    skipped      INTEGER NOT NULL,
    missed       INTEGER NOT NULL,
    late_total   INTEGER NOT NULL,
    late_most    INTEGER NOT NULL,
    late         TEXT NOT NULL,
    took_total   INTEGER NOT NULL,
    took_most    INTEGER NOT NULL,
    took         TEXT NOT NULL,
    PRIMARY KEY (job, day)
) WITHOUT ROWID;

CREATE INDEX tenure_job_day_of_application ON tenure_job_day (application, day);

-- Every hour before `up_to` was counted when it was over. What was inserted or opened again since is in
-- `tenure_hour_touched`, or open.
CREATE TABLE tenure_hours_counted (
    application  TEXT PRIMARY KEY,
    up_to        INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE tenure_hour_touched (
    job   INTEGER NOT NULL,
    hour  INTEGER NOT NULL,
    PRIMARY KEY (job, hour)
) WITHOUT ROWID;

-- Due times of the past that a person wants to have run: see `stores/backfill_ledger.py`.
CREATE TABLE tenure_backfill (
    number          INTEGER PRIMARY KEY AUTOINCREMENT,
    application     TEXT NOT NULL,
    job             INTEGER NOT NULL,
    name            TEXT NOT NULL,      -- of the job, whose row may be deleted earlier
    since           INTEGER NOT NULL,
    until           INTEGER NOT NULL,
    include         TEXT NOT NULL,      -- words, separated by commas
    at_once         INTEGER,            -- NULL: all
    even_forgotten  INTEGER NOT NULL,
    state           TEXT NOT NULL,      -- of what is left: running, paused, cancelled, done
    by              TEXT NOT NULL,
    why             TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    state_by        TEXT NOT NULL DEFAULT '',   -- who brought it into its state
    state_why       TEXT NOT NULL DEFAULT '',
    traceparent     TEXT,               -- the span that requested it
    finished_at     INTEGER             -- when no due time of it was unsettled any more
);

CREATE INDEX tenure_backfill_unfinished ON tenure_backfill (application, number) WHERE finished_at IS NULL;
CREATE INDEX tenure_backfill_of_application ON tenure_backfill (application, number);
CREATE INDEX tenure_backfill_finished ON tenure_backfill (application, finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE tenure_backfill_due (
    backfill       INTEGER NOT NULL,
    scheduled_for  INTEGER NOT NULL,
    job            INTEGER NOT NULL,
    run            INTEGER,   -- NULL: nothing has requested it
    outcome        TEXT,      -- how its run ended, or 'left', or 'overtaken'; NULL: it is not settled
    PRIMARY KEY (backfill, scheduled_for)
) WITHOUT ROWID;

CREATE INDEX tenure_backfill_due_left ON tenure_backfill_due (backfill, scheduled_for)
 WHERE outcome IS NULL AND run IS NULL;
CREATE INDEX tenure_backfill_due_open ON tenure_backfill_due (backfill, scheduled_for)
 WHERE outcome IS NULL AND run IS NOT NULL;
-- What retention leaves.
CREATE INDEX tenure_backfill_due_unsettled ON tenure_backfill_due (job, scheduled_for) WHERE outcome IS NULL;
