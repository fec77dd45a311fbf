-- Jobs, runs and what is kept of them. Nothing here is UNLOGGED: a run that a crash can forget was promised in vain.
--
-- Locks: node, then jobs by id, then runs by id. PENDING and WAITING runs of a job change only under the lock of its row; `change_job`,
-- `settle_runs` and `cancel_run` take it FOR UPDATE, which also keeps out those who took it FOR KEY SHARE: claims of jobs without a
-- limit, and whoever makes a RUNNING run PENDING again. Claims and planners skip what is locked, so that they wait for nobody.

CREATE TYPE {schema}.run_state AS ENUM   -- those up to 'running' are open, the others final: the indexes rest on this order
    ('pending', 'waiting', 'running', 'succeeded', 'failed', 'lost', 'cancelled', 'skipped');

CREATE TYPE {schema}.run_kind AS ENUM ('due', 'asked', 'backfill');

CREATE TABLE {schema}.application (
    id         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    -- Of jobs whose rows were deleted: up to when they may have run, and their highest generation. A new job goes on from there,
    -- because it may have the name of one of them.
    kept_since timestamptz NOT NULL DEFAULT to_timestamp(0),
    generation bigint NOT NULL DEFAULT 0
);

-- What nodes bring to applications, apart from their rows, which are written at every beat. A set of functions is written once.
CREATE TABLE {schema}.function_set (
    hash  text PRIMARY KEY,
    names text[] NOT NULL
);

CREATE TABLE {schema}.node_facts (
    node        uuid NOT NULL REFERENCES {schema}.node ON DELETE CASCADE,
    application text NOT NULL,
    functions   text NOT NULL REFERENCES {schema}.function_set,
    queues      text[],   -- NULL: all
    capacity    int NOT NULL,
    release     bigint NOT NULL,
    library     text NOT NULL,
    tzdata      text NOT NULL,
    PRIMARY KEY (node, application)
);

CREATE INDEX node_facts_functions ON {schema}.node_facts (functions);

-- A lane is a function and a queue: what a node may run is a set of lanes. A job has its lane while it is active, an open run has that of
-- its job; what nobody may begin, because its job is paused, has none. Lanes are never removed. Two that are added at the same moment
-- may both stay, so that neither waits for the other: a node asks for both.
CREATE TABLE {schema}.lane (
    id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    application int NOT NULL REFERENCES {schema}.application,
    function    text NOT NULL,
    queue       text NOT NULL,
    entered     xid8 NOT NULL DEFAULT pg_current_xact_id()
);

CREATE INDEX lane_function ON {schema}.lane (application, function, queue);
CREATE INDEX lane_entered ON {schema}.lane (application, entered);

CREATE TABLE {schema}.job (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    application  int NOT NULL REFERENCES {schema}.application,
    name         text NOT NULL,
    state        text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'removed')),
    generation   bigint NOT NULL DEFAULT 1,
    next_due     timestamptz,
    next_reading text COLLATE "C",   -- release of the zone rules @ reading of the wall clock, where its trigger depends on a zone
    function     text NOT NULL,
    trigger      text,
    kwargs       text NOT NULL,
    rules        json NOT NULL,      -- what differs from the defaults; below, in full, what is asked for here
    queue        text NOT NULL,
    lane         int,                -- that of its function and queue while it is active
    overlap      text NOT NULL CHECK (overlap IN ('skip', 'wait', 'replace', 'allow')),
    max_running  int CHECK (max_running > 0),
    on_time      double precision NOT NULL,
    on_lost      text NOT NULL CHECK (on_lost IN ('retry', 'fail')),
    max_lost     int NOT NULL,
    in_code      boolean NOT NULL,
    release      bigint NOT NULL,
    tzdata       text COLLATE "C" NOT NULL,
    paused_until timestamptz,
    paused_by    text NOT NULL DEFAULT '',
    paused_why   text NOT NULL DEFAULT '',
    since        timestamptz NOT NULL,
    kept_since   timestamptz NOT NULL DEFAULT to_timestamp(0),
    defined_at   timestamptz NOT NULL DEFAULT clock_timestamp(),   -- of what is removed or done: when code that defines it was last seen
    removed_at   timestamptz,
    removed_by   text NOT NULL DEFAULT '',
    override     jsonb,              -- what the code says, and who changed the job when; null: the code says what is in force
    UNIQUE (application, name),
    CHECK (state <> 'removed' OR next_due IS NULL)
) WITH (
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000
);

CREATE INDEX job_next ON {schema}.job (application, next_due) WHERE state = 'active' AND next_due IS NOT NULL;
CREATE INDEX job_reading ON {schema}.job (application, next_reading) WHERE state = 'active' AND next_reading IS NOT NULL;
CREATE INDEX job_older_zones ON {schema}.job (application, name) WHERE state = 'active' AND next_reading < tzdata;
CREATE INDEX job_function ON {schema}.job (application, function) WHERE state <> 'removed';
CREATE INDEX job_over ON {schema}.job (application, defined_at)   -- what may be forgotten one day
 WHERE state = 'removed' OR (state = 'active' AND next_due IS NULL AND trigger IS NOT NULL);
CREATE INDEX job_removed ON {schema}.job (application, name) WHERE state = 'removed';
CREATE INDEX job_resumes ON {schema}.job (application, paused_until) WHERE state = 'paused' AND paused_until IS NOT NULL;

CREATE TABLE {schema}.job_change (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job        bigint NOT NULL REFERENCES {schema}.job,
    generation bigint NOT NULL,
    at         timestamptz NOT NULL,
    what       text NOT NULL CHECK (what IN ('added', 'updated', 'paused', 'resumed', 'removed')),
    trigger    text,
    by         text NOT NULL,
    why        text NOT NULL,
    until      timestamptz
);

CREATE INDEX job_change_job ON {schema}.job_change (job, id);

CREATE TABLE {schema}.run (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY WITH (fillfactor = 50),   -- every run is written three times
    job           bigint NOT NULL REFERENCES {schema}.job,
    scheduled_for timestamptz NOT NULL,
    due_at        timestamptz NOT NULL,
    expires_at    timestamptz,
    claimed_at    timestamptz,
    started_at    timestamptz,
    finished_at   timestamptz,
    generation    bigint NOT NULL,
    entered       xid8 NOT NULL DEFAULT pg_current_xact_id(),   -- who made it PENDING, see `claim_runs`
    application   int NOT NULL,
    lane          int,
    state         {schema}.run_state NOT NULL,
    kind          {schema}.run_kind NOT NULL,
    attempt       int NOT NULL DEFAULT 0,
    failures      int NOT NULL DEFAULT 0,
    losses        int NOT NULL DEFAULT 0,
    interruptions int NOT NULL DEFAULT 0,
    stopping      boolean NOT NULL DEFAULT false,   -- while it runs: its node was asked to stop
    count         int NOT NULL DEFAULT 1,
    key           text COLLATE "C" NOT NULL,
    node          uuid,
    label         text NOT NULL DEFAULT '',   -- of the node, whose row does not stay as long
    token         text,
    asked_to_end  text NOT NULL DEFAULT '',
    reason        text NOT NULL DEFAULT '',
    until         timestamptz,
    by            text NOT NULL DEFAULT '',
    kwargs        text,
    UNIQUE (job, key) WITH (fillfactor = 50),
    CHECK ((token IS NOT NULL) = (state = 'running'))
) WITH (   -- by a number of dead rows and not by a share of the table: a long history would let more and more of them lie about
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_analyze_scale_factor = 0.05
);

CREATE INDEX run_due ON {schema}.run (lane, due_at, id) WHERE state = 'pending' AND lane IS NOT NULL;
CREATE INDEX run_expires ON {schema}.run (lane, expires_at) WHERE state = 'pending' AND lane IS NOT NULL AND expires_at IS NOT NULL;
CREATE INDEX run_entered ON {schema}.run (application, entered) WHERE state = 'pending' AND lane IS NOT NULL;
CREATE INDEX run_waiting ON {schema}.run (application, job, due_at, id) WHERE state = 'waiting';
CREATE INDEX run_waits ON {schema}.run (lane, job) WHERE state = 'waiting' AND lane IS NOT NULL;
CREATE INDEX run_running ON {schema}.run (application, node) WHERE state = 'running';
-- An open run that has an attempt behind it takes a place under `max_running`; none that waits has.
CREATE INDEX run_open ON {schema}.run (job, attempt) WHERE state <= 'running';
CREATE INDEX run_final ON {schema}.run (job, scheduled_for) WHERE state > 'running';
-- By state, so that the few that failed are found among the many that did not.
CREATE INDEX run_history ON {schema}.run (application, state, scheduled_for) WHERE state > 'running';
CREATE INDEX run_several ON {schema}.run (job, until) WHERE until IS NOT NULL;

-- Keys that somebody gave to runs which retention has removed.
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

CREATE TABLE {schema}.run_log (
    run    bigint NOT NULL,
    began  timestamptz NOT NULL,   -- its attempt
    place  bigint NOT NULL,
    line   text NOT NULL,
    PRIMARY KEY (run, began, place)
);

CREATE TABLE {schema}.guard (
    name  text NOT NULL,
    key   text NOT NULL,
    at    timestamptz NOT NULL,
    by    text NOT NULL,
    until timestamptz,   -- when the last span that was asked for is over; NULL: for ever
    PRIMARY KEY (name, key)
);

CREATE INDEX guard_until ON {schema}.guard (until) WHERE until IS NOT NULL;
