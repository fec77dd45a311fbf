-- Applications, what their nodes can run, and jobs.
--
-- The limits on jobs, nodes and elections keep one wrong row from stopping every node. Runs have no such limits: each
-- run is written three times, and every check would cost three times.

CREATE TABLE {schema}.application (
    id         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    -- About jobs whose rows were deleted: until when they may have run, and their highest generation. A new job may
    -- have the name of a deleted one, and continues from here.
    kept_since timestamptz NOT NULL DEFAULT to_timestamp(0),
    generation bigint NOT NULL DEFAULT 0
);

-- A set of functions, written once and shared by all nodes that have it.
CREATE TABLE {schema}.function_set (
    hash  text PRIMARY KEY,
    names text[] NOT NULL
);

-- What a node can run for an application. Apart from `node`, whose rows are written at every beat.
CREATE TABLE {schema}.node_facts (
    node        uuid NOT NULL REFERENCES {schema}.node ON DELETE CASCADE,
    application text NOT NULL,
    functions   text NOT NULL REFERENCES {schema}.function_set,
    queues      text[],   -- NULL: all
    capacity    int NOT NULL,
    release     bigint NOT NULL,
    library     text NOT NULL,
    tzdata      text NOT NULL,
    -- To read, and to notice a deploy: the machine, a digest of what its functions take, and how far its clock is
    -- ahead of this server's.
    host         text NOT NULL DEFAULT '',
    signatures   text NOT NULL DEFAULT '',
    clock_offset double precision,
    unfit        text NOT NULL DEFAULT '',   -- JSON: see `core/unfit.py`
    PRIMARY KEY (node, application)
);

CREATE INDEX node_facts_functions ON {schema}.node_facts (functions);

-- A lane is a function and a queue; a node may run a set of lanes. An active job has a lane, and its open runs have the
-- same one. Runs of a paused job have none, so no node can begin them. Lanes are never removed. Two sessions that add
-- the same lane at the same moment do not wait for each other: both rows stay, and a node asks for both.
CREATE TABLE {schema}.lane (
    id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    application int NOT NULL REFERENCES {schema}.application,
    function    text NOT NULL,
    queue       text NOT NULL
);

CREATE INDEX lane_function ON {schema}.lane (application, function, queue);

CREATE TABLE {schema}.job (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    application  int NOT NULL REFERENCES {schema}.application,
    name         text NOT NULL,
    state        text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'removed')),
    generation   bigint NOT NULL DEFAULT 1,
    next_due     timestamptz,
    next_reading text COLLATE "C",   -- 'tzdata release@wall clock' of next_due, if the trigger depends on a zone
    function     text NOT NULL,
    trigger      text,
    kwargs       text NOT NULL,
    rules        json NOT NULL,      -- what differs from the defaults; the rules that statements read follow in full
    queue        text NOT NULL,
    lane         int,                -- of its function and queue, while the job is active
    overlap      text NOT NULL CHECK (overlap IN ('skip', 'wait', 'replace', 'allow')),
    max_running  int CHECK (max_running > 0),
    pool         text,               -- a limit that it shares with other jobs
    after        text COLLATE "C",   -- the job that it follows
    after_on     text NOT NULL DEFAULT 'success' CHECK (after_on IN ('success', 'failure', 'end')),
    followed     boolean NOT NULL DEFAULT false,   -- a job follows it, or has followed it: its runs owe runs of that
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
    defined_at   timestamptz NOT NULL DEFAULT clock_timestamp(),   -- if removed or done: when code last defined it
    removed_at   timestamptz,
    removed_by   text NOT NULL DEFAULT '',
    override     jsonb,              -- what the code says, who changed the job and when; NULL: the code is in force
    UNIQUE (application, name),
    CHECK (state <> 'removed' OR next_due IS NULL),
    CONSTRAINT job_within_limits CHECK (
        generation BETWEEN 0 AND 2147483647
        AND json_typeof(rules) = 'object'
        AND on_time BETWEEN 0 AND 1e10   -- NaN is greater
        AND max_lost >= 0
        -- The range of Python's calendar, without infinity.
        AND next_due BETWEEN '1900-01-01 00:00Z' AND '9999-01-01 00:00Z'
        AND paused_until BETWEEN '1900-01-01 00:00Z' AND '9999-01-01 00:00Z'
        AND since BETWEEN '1900-01-01 00:00Z' AND '9999-01-01 00:00Z'
    )
) WITH (
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000
);

CREATE INDEX job_next ON {schema}.job (application, next_due) WHERE state = 'active' AND next_due IS NOT NULL;
CREATE INDEX job_reading ON {schema}.job (application, next_reading)
 WHERE state = 'active' AND next_reading IS NOT NULL;
CREATE INDEX job_older_zones ON {schema}.job (application, name) WHERE state = 'active' AND next_reading < tzdata;
CREATE INDEX job_function ON {schema}.job (application, function) WHERE state <> 'removed';
CREATE INDEX job_over ON {schema}.job (application, defined_at)   -- those that retention may delete one day
 WHERE state = 'removed' OR (state = 'active' AND next_due IS NULL AND trigger IS NOT NULL);
CREATE INDEX job_removed ON {schema}.job (application, name) WHERE state = 'removed';
CREATE INDEX job_resumes ON {schema}.job (application, paused_until)
 WHERE state = 'paused' AND paused_until IS NOT NULL;

CREATE INDEX job_after ON {schema}.job (application, after) WHERE after IS NOT NULL;
CREATE INDEX job_pool ON {schema}.job (application, pool) WHERE pool IS NOT NULL;

-- Limits shared by jobs. A claim inserts the row of a pool that it finds without one.
CREATE TABLE {schema}.pool (
    application int NOT NULL REFERENCES {schema}.application,
    name        text COLLATE "C" NOT NULL,
    size        int CHECK (size >= 0),   -- NULL: it was never set, and counts as 1
    PRIMARY KEY (application, name)
);

CREATE TABLE {schema}.job_change (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job        bigint NOT NULL REFERENCES {schema}.job,
    generation bigint NOT NULL,
    at         timestamptz NOT NULL,
    what       text NOT NULL CHECK (what IN ('added', 'updated', 'paused', 'resumed', 'removed')),
    trigger    text,
    by         text NOT NULL,
    why        text NOT NULL,
    until      timestamptz,
    after      text   -- the job that it follows from here on
);

CREATE INDEX job_change_job ON {schema}.job_change (job, id);

-- What people did, and from where.
CREATE TABLE {schema}.action (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL,
    application text NOT NULL,   -- '': an election that belongs to no application
    by          text NOT NULL,
    what        text NOT NULL,
    target      text NOT NULL,   -- the job, or the election
    run         bigint,
    why         text NOT NULL,
    origin      text NOT NULL,
    detail      text NOT NULL
);

CREATE INDEX action_application ON {schema}.action (application, id);
CREATE INDEX action_target ON {schema}.action (application, target, id);
