-- Runs, their logs, and the keys that outlive them. No table is UNLOGGED: a run that a crash can erase was never
-- promised.
--
-- Lock order: node, then jobs by id, then pools by name, then backfills, then runs by id. PENDING and WAITING runs of a
-- job change only under the lock of the job's row. `change_job`, `settle_runs` and `cancel_runs` take that lock FOR
-- UPDATE. This also excludes the sessions that take it FOR KEY SHARE: claims of jobs without a limit, and those that
-- make a RUNNING run PENDING again. Claims and planners skip locked rows, so they never wait.

-- Up to 'running' a run is open, after that it is final. The indexes rely on this order.
CREATE TYPE {schema}.run_state AS ENUM
    ('pending', 'waiting', 'running', 'succeeded', 'failed', 'lost', 'cancelled', 'skipped');

CREATE TYPE {schema}.run_kind AS ENUM ('due', 'manual', 'backfill');

-- Each run is written three times, hence the room in its indexes. Vacuum comes after a number of dead rows and not
-- after a share of the table: with a long history, more and more of them would pile up.
CREATE TABLE {schema}.run (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY WITH (fillfactor = 50),
    job           bigint NOT NULL REFERENCES {schema}.job,
    scheduled_for timestamptz NOT NULL,
    due_at        timestamptz NOT NULL,
    expires_at    timestamptz,
    claimed_at    timestamptz,
    started_at    timestamptz,
    finished_at   timestamptz,
    generation    bigint NOT NULL,
    entered       xid8 NOT NULL DEFAULT pg_current_xact_id(),   -- by which it became PENDING: see `claim_runs`
    application   int NOT NULL,
    lane          int,
    state         {schema}.run_state NOT NULL,
    kind          {schema}.run_kind NOT NULL,
    attempt       int NOT NULL DEFAULT 0,
    failures      int NOT NULL DEFAULT 0,
    losses        int NOT NULL DEFAULT 0,
    interruptions int NOT NULL DEFAULT 0,
    stopping      boolean NOT NULL DEFAULT false,   -- while it runs: its node was told to stop
    count         int NOT NULL DEFAULT 1,
    key           text COLLATE "C" NOT NULL,
    node          uuid,
    label         text NOT NULL DEFAULT '',   -- of the node, whose row is deleted earlier
    token         text,
    asked_to_end  text NOT NULL DEFAULT '',
    reason        text NOT NULL DEFAULT '',
    until         timestamptz,
    by            text NOT NULL DEFAULT '',
    kwargs        text,
    looks         int,           -- attempts that raised NotYet; NULL: none
    looking_since timestamptz,   -- when the first of these began
    last_look     int,           -- the number of the last of these
    reopened      int NOT NULL DEFAULT 0,   -- its attempts when it was last retried or backfilled
    slot          text COLLATE "C",
    outcome       text,   -- between two attempts: how the last one ended
    result        text,   -- what the body returned; seldom anything
    pool          text COLLATE "C",   -- in which it waits for a place, or has one
    traceparent   text,   -- the span that requested it
    owes          boolean NOT NULL DEFAULT false,   -- once it is final, followers are owed their runs: see `follow_up`
    UNIQUE (job, key) WITH (fillfactor = 50),
    CHECK ((token IS NOT NULL) = (state = 'running'))
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_analyze_scale_factor = 0.05
);

CREATE INDEX run_due ON {schema}.run (lane, due_at, id) WHERE state = 'pending' AND lane IS NOT NULL;
CREATE INDEX run_expires ON {schema}.run (lane, expires_at)
 WHERE state = 'pending' AND lane IS NOT NULL AND expires_at IS NOT NULL;
CREATE INDEX run_entered ON {schema}.run (application, entered) WHERE state = 'pending' AND lane IS NOT NULL;
CREATE INDEX run_waiting ON {schema}.run (application, job, due_at, id) WHERE state = 'waiting';
CREATE INDEX run_waits ON {schema}.run (lane, job) WHERE state = 'waiting' AND lane IS NOT NULL AND pool IS NULL;
-- Who has a place in a pool, and who waits for one.
CREATE INDEX run_pool ON {schema}.run (application, pool, state, due_at, id)
 WHERE pool IS NOT NULL AND state IN ('waiting', 'running');
CREATE INDEX run_running ON {schema}.run (application, node) WHERE state = 'running';
-- An open run with an attempt behind it takes a place under `max_running`; the attempts before it was reopened do not
-- count. So does a run that waits for its pool, with or without an attempt. One that waits for its job has none.
CREATE INDEX run_open ON {schema}.run (job, (attempt - reopened)) WHERE state <= 'running';
CREATE INDEX run_final ON {schema}.run (job, scheduled_for) WHERE state > 'running';
-- By state, to find the few that failed among the many that did not.
CREATE INDEX run_history ON {schema}.run (application, state, scheduled_for) WHERE state > 'running';
-- Which followers are owed runs. A run of a job without followers is in here at no time.
CREATE INDEX run_owed ON {schema}.run (application, job, id) WHERE owes AND state > 'running';
-- Runs that were requested with arguments of their own and have not begun.
CREATE INDEX run_arguments ON {schema}.run (application, id) WHERE kwargs IS NOT NULL AND state <= 'waiting';
CREATE INDEX run_several ON {schema}.run (job, until) WHERE until IS NOT NULL;

-- Of each slot, at most one run that no node has claimed.
CREATE UNIQUE INDEX run_slot ON {schema}.run (application, slot, job)
 WHERE slot IS NOT NULL AND attempt = 0 AND state <= 'waiting';

-- Keys that users gave to runs which retention has deleted since.
CREATE TABLE {schema}.kept_key (
    job           bigint NOT NULL REFERENCES {schema}.job,
    application   int NOT NULL,
    run           bigint NOT NULL,
    scheduled_for timestamptz NOT NULL,
    started_at    timestamptz,
    finished_at   timestamptz,
    state         {schema}.run_state NOT NULL,
    key           text COLLATE "C" NOT NULL,
    digest        text NOT NULL,   -- of the arguments
    PRIMARY KEY (job, key)
);

CREATE INDEX kept_key_old ON {schema}.kept_key (application, scheduled_for);

-- Attempts that others have followed. The last attempt of a run is in the run's row: see `keep_attempts`.
CREATE TABLE {schema}.attempt (
    run         bigint NOT NULL,
    number      bigint NOT NULL,
    count       bigint NOT NULL DEFAULT 1,   -- how many looks this stands for; their last has this number
    label       text NOT NULL,   -- of its node
    claimed_at  timestamptz,
    started_at  timestamptz,
    finished_at timestamptz,
    outcome     text NOT NULL,
    error       text NOT NULL,
    PRIMARY KEY (run, number)
);

CREATE TABLE {schema}.run_log (
    run     bigint NOT NULL,
    attempt bigint NOT NULL,
    place   bigint NOT NULL,   -- the number of the line within the attempt; a gap: lines were dropped
    at      timestamptz NOT NULL,
    line    text NOT NULL,
    PRIMARY KEY (run, attempt, place)
);

-- How far the bodies of runs said they were, the last time. Written while a body runs, so apart from `run`.
CREATE TABLE {schema}.run_progress (
    run     bigint PRIMARY KEY,
    attempt bigint NOT NULL,
    done    double precision NOT NULL,
    total   double precision,
    text    text NOT NULL,
    at      timestamptz NOT NULL
) WITH (fillfactor = 70);

-- Figures of a job in an hour: see `core/figures.py`. Two rows: of the runs that are there, counted anew while anything
-- may change; and of those that retention has removed. No references to `job`: a count must not wait for its row.
CREATE TABLE {schema}.job_hour (
    job         bigint NOT NULL,
    application int NOT NULL,
    hour        timestamptz NOT NULL,
    removed     boolean NOT NULL,   -- of runs that are not there any more
    succeeded   bigint NOT NULL,
    failed      bigint NOT NULL,
    lost        bigint NOT NULL,
    cancelled   bigint NOT NULL,
    skipped     bigint NOT NULL,
    missed      bigint NOT NULL,
    open        bigint NOT NULL,
    late_total  bigint NOT NULL,   -- microseconds
    late_most   bigint NOT NULL,
    late        text NOT NULL,     -- 'bucket:runs,…'
    took_total  bigint NOT NULL,
    took_most   bigint NOT NULL,
    took        text NOT NULL,
    PRIMARY KEY (job, hour, removed)
) WITH (fillfactor = 80);

CREATE INDEX job_hour_application ON {schema}.job_hour (application, hour);
CREATE INDEX job_hour_open ON {schema}.job_hour (job) WHERE open > 0;

-- The same of a day, of which nothing changes any more.
CREATE TABLE {schema}.job_day (
    job         bigint NOT NULL,
    application int NOT NULL,
    day         timestamptz NOT NULL,
    succeeded   bigint NOT NULL,
    failed      bigint NOT NULL,
    lost        bigint NOT NULL,
    cancelled   bigint NOT NULL,
    skipped     bigint NOT NULL,
    missed      bigint NOT NULL,
    late_total  bigint NOT NULL,
    late_most   bigint NOT NULL,
    late        text NOT NULL,
    took_total  bigint NOT NULL,
    took_most   bigint NOT NULL,
    took        text NOT NULL,
    PRIMARY KEY (job, day)
);

CREATE INDEX job_day_application ON {schema}.job_day (application, day);

-- Every hour before `up_to` was counted when it was over. What has changed since is in `hour_touched`, or open.
CREATE TABLE {schema}.hours_counted (
    application int PRIMARY KEY,
    up_to       timestamptz NOT NULL
);

-- Hours that are over and in which a run was inserted or opened again. Only grows, so that no transaction waits for
-- another; a count deletes what it has seen.
CREATE TABLE {schema}.hour_touched (
    id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job bigint NOT NULL,
    at  timestamptz NOT NULL
);

CREATE INDEX hour_touched_job ON {schema}.hour_touched (job);

-- Due times of the past that a person wants to have run: see `stores/backfill_ledger.py`. No references to `job`: a
-- backfill can be read longer than its job.
CREATE TABLE {schema}.backfill (
    number         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    application    int NOT NULL,
    job            bigint NOT NULL,
    name           text NOT NULL,
    since          timestamptz NOT NULL,
    until          timestamptz NOT NULL,
    include        text[] NOT NULL,
    reopens        {schema}.run_state[] NOT NULL,   -- the states of the runs that are opened again
    at_once        int,   -- NULL: all
    even_forgotten boolean NOT NULL,
    state          text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'paused', 'cancelled', 'done')),
    by             text NOT NULL,
    why            text NOT NULL,
    created_at     timestamptz NOT NULL,
    state_by       text NOT NULL DEFAULT '',   -- who brought it into its state
    state_why      text NOT NULL DEFAULT '',
    traceparent    text,         -- the span that requested it
    finished_at    timestamptz   -- when no due time of it was unsettled any more
);

CREATE INDEX backfill_application ON {schema}.backfill (application, number);
CREATE INDEX backfill_unfinished ON {schema}.backfill (application, number) WHERE finished_at IS NULL;
CREATE INDEX backfill_finished ON {schema}.backfill (application, finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE {schema}.backfill_due (
    backfill      bigint NOT NULL,
    scheduled_for timestamptz NOT NULL,
    job           bigint NOT NULL,
    key           text COLLATE "C" NOT NULL,
    run           bigint,   -- NULL: nothing has requested it
    outcome       text,     -- how its run ended, or 'left', or 'overtaken'; NULL: it is not settled
    PRIMARY KEY (backfill, scheduled_for)
);

CREATE INDEX backfill_due_left ON {schema}.backfill_due (backfill, scheduled_for) WHERE outcome IS NULL AND run IS NULL;
CREATE INDEX backfill_due_open ON {schema}.backfill_due (backfill, scheduled_for)
 WHERE outcome IS NULL AND run IS NOT NULL;
-- What retention leaves.
CREATE INDEX backfill_due_unsettled ON {schema}.backfill_due (job, scheduled_for) WHERE outcome IS NULL;
