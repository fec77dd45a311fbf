-- What nodes do many thousand times a second: claim due runs.
--
-- Counts stop at what an int can hold, so that an absurd count in one row cannot fail a statement about many.

-- How many runs of a job take a place under `max_running`: those with an attempt that are not final, and those that
-- wait for its pool.
CREATE OR REPLACE FUNCTION {schema}.places_taken(of_job bigint) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) + CASE WHEN (SELECT j.pool FROM {schema}.job j WHERE j.id = of_job) IS NOT NULL
                           THEN (SELECT count(*) FROM {schema}.run w
                                  WHERE w.job = of_job AND w.attempt - w.reopened = 0 AND w.state <= 'running'
                                    AND w.state = 'waiting' AND w.pool IS NOT NULL)
                           ELSE 0 END
      FROM {schema}.run r WHERE r.job = of_job AND r.attempt - r.reopened > 0 AND r.state <= 'running'
$$;

-- Jobs in these lanes that have WAITING runs and a free place. Reads without a lock.
CREATE OR REPLACE FUNCTION {schema}.jobs_with_places(lanes int[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp {planner} AS $$
BEGIN
    RETURN (
        WITH RECURSIVE waits AS (   -- from job to job, however many runs wait
            SELECT l.lane, w.job FROM unnest(lanes) AS l (lane)
             CROSS JOIN LATERAL (SELECT r.job FROM {schema}.run r
                                  WHERE r.lane = l.lane AND r.state = 'waiting' AND r.pool IS NULL
                                  ORDER BY r.job LIMIT 1) w
            UNION ALL
            SELECT w.lane, (SELECT r.job FROM {schema}.run r
                             WHERE r.lane = w.lane AND r.state = 'waiting' AND r.pool IS NULL AND r.job > w.job
                             ORDER BY r.job LIMIT 1)
              FROM waits w WHERE w.job IS NOT NULL
        )
        SELECT array_agg(j.id) FROM waits w JOIN {schema}.job j ON j.id = w.job
         WHERE j.state = 'active' AND (j.max_running IS NULL OR {schema}.places_taken(j.id) < j.max_running));
END $$;

-- Makes WAITING runs of these jobs PENDING, oldest first, as many as there are places. A run that waited never counts
-- as missed. Returns the least `due_at` among them.
CREATE OR REPLACE FUNCTION {schema}.end_waits(app int, jobs bigint[]) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    locked bigint[];
    first  timestamptz;
BEGIN
    SELECT array_agg(l.id) INTO locked
      FROM (SELECT j.id FROM {schema}.job j WHERE j.id = ANY (jobs) AND j.state = 'active'
               FOR NO KEY UPDATE SKIP LOCKED) l;
    IF locked IS NULL THEN RETURN NULL; END IF;
    WITH ended AS (   -- counts again, under the locks
        UPDATE {schema}.run r SET state = 'pending', expires_at = NULL, entered = pg_current_xact_id()
          FROM unnest(locked) AS l (id) JOIN {schema}.job j ON j.id = l.id
               CROSS JOIN LATERAL (SELECT w.id FROM {schema}.run w
                                    WHERE w.application = app AND w.job = l.id AND w.state = 'waiting'
                                      AND w.pool IS NULL
                                    ORDER BY w.due_at, w.id
                                    LIMIT CASE WHEN j.max_running IS NOT NULL
                                               THEN greatest(j.max_running - {schema}.places_taken(l.id), 0) END) o
         WHERE r.id = o.id
        RETURNING r.due_at
    )
    SELECT min(e.due_at) INTO first FROM ended e;
    RETURN first;
END $$;

-- The advisory lock of a session that inserts the row of a pool.
CREATE OR REPLACE FUNCTION {schema}.key_of_pool(app int, of_name text) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT hashtextextended('tenure pool {schema} ' || app || ' ' || of_name, 0)
$$;

-- The runs of these lanes that wait for pools with free places: the oldest of each pool, as many as there are places.
-- Reads without a lock.
CREATE OR REPLACE FUNCTION {schema}.next_in_pools(app int, lanes int[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp {planner} AS $$
BEGIN
    RETURN (
        WITH RECURSIVE waits AS (   -- from pool to pool, however many runs wait
            (SELECT r.pool FROM {schema}.run r
              WHERE r.application = app AND r.pool IS NOT NULL AND r.state IN ('waiting', 'running')
              ORDER BY r.pool LIMIT 1)
            UNION ALL
            SELECT (SELECT r.pool FROM {schema}.run r
                     WHERE r.application = app AND r.pool > w.pool AND r.state IN ('waiting', 'running')
                     ORDER BY r.pool LIMIT 1)
              FROM waits w WHERE w.pool IS NOT NULL
        )
        SELECT array_agg(o.id)
          FROM (SELECT w.pool,
                       coalesce((SELECT p.size FROM {schema}.pool p WHERE p.application = app AND p.name = w.pool), 1)
                       - (SELECT count(*) FROM {schema}.run b
                           WHERE b.application = app AND b.pool = w.pool AND b.state IN ('waiting', 'running')
                             AND b.state = 'running') AS free
                  FROM waits w WHERE w.pool IS NOT NULL) p
         CROSS JOIN LATERAL (SELECT r.id FROM {schema}.run r
                              WHERE r.application = app AND r.pool = p.pool AND r.state IN ('waiting', 'running')
                                AND r.state = 'waiting' AND r.lane = ANY (lanes)
                              ORDER BY r.due_at, r.id LIMIT greatest(p.free, 0)) o);
END $$;

-- Makes these runs, which wait for pools, PENDING, unless another session has locked their jobs or pools.
-- Returns the least `due_at` among them.
CREATE OR REPLACE FUNCTION {schema}.end_waits_for_pools(app int, runs bigint[]) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    locked bigint[];   -- jobs
    pools  text[];
    first  timestamptz;
BEGIN
    SELECT array_agg(l.id) INTO locked
      FROM (SELECT j.id FROM {schema}.job j
             WHERE j.id = ANY (ARRAY(SELECT r.job FROM {schema}.run r WHERE r.id = ANY (runs))) AND j.state = 'active'
               FOR NO KEY UPDATE SKIP LOCKED) l;
    IF locked IS NULL THEN RETURN NULL; END IF;
    SELECT array_agg(l.name) INTO pools
      FROM (SELECT p.name FROM {schema}.pool p
             WHERE p.application = app
               AND p.name = ANY (ARRAY(SELECT r.pool FROM {schema}.run r WHERE r.id = ANY (runs)))
             ORDER BY p.name FOR NO KEY UPDATE SKIP LOCKED) l;
    WITH ended AS (
        UPDATE {schema}.run r SET state = 'pending', expires_at = NULL, pool = NULL, entered = pg_current_xact_id()
          FROM (SELECT o.id FROM {schema}.run o
                 WHERE o.id = ANY (runs) AND o.job = ANY (locked) AND o.state = 'waiting' AND o.pool = ANY (pools)
                   FOR NO KEY UPDATE SKIP LOCKED) x
         WHERE r.id = x.id
        RETURNING r.due_at
    )
    SELECT min(e.due_at) INTO first FROM ended e;
    RETURN first;
END $$;

-- Decides which candidates of jobs with a pool may begin. The caller has locked the candidates and their jobs.
--
-- A candidate needs the place of its job first, as the claim decides it, and then one of its pool. The pool is locked
-- in one statement, and its RUNNING runs are counted in a later one, which sees what the claims before committed. The
-- oldest get the free places; the others wait with the place of their job. Those of a pool that another session has
-- locked are left out, and stay as they are.
--
-- Returns the candidates that are left. One without a place of its job gets a rank beyond any limit.
CREATE OR REPLACE FUNCTION {schema}.enter_pools(
    app int, INOUT ids bigint[], INOUT jobs bigint[], INOUT ranks bigint[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    names  text[];
    locked text[];
BEGIN
    SELECT array_agg(DISTINCT j.pool) INTO names FROM {schema}.job j WHERE j.id = ANY (jobs) AND j.pool IS NOT NULL;
    INSERT INTO {schema}.pool (application, name)   -- the lock: a claim must not wait at the primary key
    SELECT app, n.name FROM unnest(names) AS n (name)
     WHERE CASE WHEN NOT EXISTS (SELECT FROM {schema}.pool p WHERE p.application = app AND p.name = n.name)
                THEN pg_try_advisory_xact_lock({schema}.key_of_pool(app, n.name)) ELSE false END
    ON CONFLICT DO NOTHING;
    SELECT array_agg(l.name) INTO locked
      FROM (SELECT p.name FROM {schema}.pool p WHERE p.application = app AND p.name = ANY (names)
             ORDER BY p.name FOR NO KEY UPDATE SKIP LOCKED) l;
    -- Later statements than the one that locked the pools.
    WITH candidate AS MATERIALIZED (
        SELECT c.id, c.job, c.place, c.rank, j.pool, r.due_at,
               j.max_running IS NULL OR r.attempt > r.reopened
                   OR {schema}.places_taken(j.id) <= j.max_running - coalesce(c.rank, 1) AS fits
          FROM unnest(ids, jobs, ranks) WITH ORDINALITY AS c (id, job, rank, place)
          JOIN {schema}.run r ON r.id = c.id JOIN {schema}.job j ON j.id = c.job
    ), turn AS (
        SELECT c.id, row_number() OVER (PARTITION BY c.pool ORDER BY c.due_at, c.id) AS turn
          FROM candidate c WHERE c.pool = ANY (locked) AND c.fits
    ), held AS (
        UPDATE {schema}.run r SET state = 'waiting', pool = c.pool, expires_at = NULL
          FROM candidate c JOIN turn t ON t.id = c.id
               JOIN {schema}.pool p ON p.application = app AND p.name = c.pool
         WHERE r.id = c.id
           AND t.turn > coalesce(p.size, 1)
                        - (SELECT count(*) FROM {schema}.run b
                            WHERE b.application = app AND b.pool = c.pool AND b.state IN ('waiting', 'running')
                              AND b.state = 'running')
        RETURNING r.id
    )
    SELECT array_agg(c.id ORDER BY c.place), array_agg(c.job ORDER BY c.place),
           array_agg(CASE WHEN c.fits THEN coalesce(c.rank, 1) ELSE 4294967296 END ORDER BY c.place)
      INTO ids, jobs, ranks
      FROM candidate c
     WHERE (c.pool IS NULL OR c.pool = ANY (coalesce(locked, '{}'))) AND c.id NOT IN (SELECT h.id FROM held h);
END $$;

-- Candidates without a free place wait or are skipped, as `overlap` of their jobs says. The caller has locked the
-- jobs. Under `replace` the RUNNING runs are requested to end, unless a newer due time begins now: then nothing waits
-- for them.
CREATE OR REPLACE FUNCTION {schema}.hold_back(app int, candidates bigint[], claimed bigint[], now_ timestamptz)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    replaced    bigint[];   -- jobs whose newest due time was claimed
    newest_only bigint[];   -- other jobs, of which only the newest due time waits
    left_turns  boolean;    -- one of them waited for its pool: its job has a place again
BEGIN
    SELECT array_agg(DISTINCT r.job) INTO replaced
      FROM unnest(claimed) AS c (id) JOIN {schema}.run r ON r.id = c.id JOIN {schema}.job j ON j.id = r.job
     WHERE r.kind = 'due' AND r.attempt = 1 AND j.overlap = 'replace';
    SELECT array_agg(DISTINCT r.job) INTO newest_only
      FROM unnest(candidates) AS c (id) JOIN {schema}.run r ON r.id = c.id JOIN {schema}.job j ON j.id = r.job
     WHERE r.kind = 'due' AND j.overlap IN ('wait', 'replace') AND j.id <> ALL (coalesce(replaced, '{}'));
    UPDATE {schema}.run r
       SET state = CASE WHEN x.why <> '' THEN 'skipped' ELSE 'waiting' END::{schema}.run_state,
           reason = CASE WHEN x.why <> '' THEN x.why ELSE r.reason END, pool = NULL,
           finished_at = CASE WHEN x.why <> '' THEN now_ ELSE r.finished_at END
      FROM (SELECT o.id, CASE WHEN o.kind <> 'due' THEN ''
                              WHEN j.overlap = 'skip' THEN 'overlap'
                              WHEN j.id = ANY (replaced) THEN 'superseded'
                              ELSE '' END AS why
              FROM unnest(candidates) AS c (id) JOIN {schema}.run o ON o.id = c.id
              JOIN {schema}.job j ON j.id = o.job) x
     WHERE r.id = x.id;
    IF newest_only IS NULL THEN RETURN; END IF;
    -- A run that waits for its pool has its turn. Only under `replace` does a newer one take it, if it never began.
    WITH behind AS (
        SELECT r.id, r.job, r.scheduled_for, r.pool
          FROM unnest(newest_only) AS n (job) JOIN {schema}.job j ON j.id = n.job
          JOIN {schema}.run r ON r.application = app AND r.job = n.job AND r.state = 'waiting' AND r.kind = 'due'
         WHERE r.pool IS NULL OR (j.overlap = 'replace' AND r.attempt <= r.reopened)
    ), older AS (
        UPDATE {schema}.run r SET state = 'skipped', reason = 'superseded', finished_at = now_
          FROM behind b
         WHERE r.id = b.id
           AND EXISTS (SELECT FROM behind o
                        WHERE o.job = b.job AND (o.scheduled_for, o.id) > (b.scheduled_for, b.id))
        RETURNING b.pool
    )
    SELECT bool_or(o.pool IS NOT NULL) INTO left_turns FROM older o;
    IF left_turns THEN PERFORM {schema}.notify_nodes(app); END IF;
    UPDATE {schema}.run r SET asked_to_end = 'replaced'
     WHERE r.id IN (SELECT o.id FROM unnest(newest_only) AS n (job)
                      JOIN {schema}.job j ON j.id = n.job JOIN {schema}.run o ON o.job = n.job
                     WHERE j.overlap = 'replace' AND o.asked_to_end = '' AND o.id <> ALL (claimed)
                       -- RUNNING; a test of `state` alone might call for the index `run_running`.
                       AND o.attempt - o.reopened > 0 AND o.state <= 'running' AND o.token IS NOT NULL
                       FOR NO KEY UPDATE OF o SKIP LOCKED);
END $$;

-- Keeps the last attempt of each of these runs, before the row of the run loses it. An attempt that was kept before
-- stays: a later one was given back unbegun. Looks that follow each other are one row.
CREATE OR REPLACE FUNCTION {schema}.keep_attempts(runs bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
BEGIN
    UPDATE {schema}.attempt a
       SET number = r.attempt, count = a.count + 1, label = r.label, finished_at = r.finished_at, error = r.reason
      FROM {schema}.run r
     WHERE r.id = ANY (runs) AND r.outcome = 'not yet' AND r.state <> 'running'
       AND a.run = r.id AND a.number = r.attempt::bigint - 1 AND a.outcome = 'not yet';
    INSERT INTO {schema}.attempt (run, number, label, claimed_at, started_at, finished_at, outcome, error)
    SELECT r.id, r.attempt, r.label, r.claimed_at, r.started_at, r.finished_at,
           coalesce(r.outcome, r.state::text), r.reason
      FROM {schema}.run r WHERE r.id = ANY (runs) AND r.attempt > 0 AND r.state <> 'running'
    ON CONFLICT DO NOTHING;
END $$;

-- The definitions of jobs, which claims do not repeat with every run.
CREATE OR REPLACE FUNCTION {schema}.jobs_by_id(ids bigint[]) RETURNS SETOF {schema}.job
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
BEGIN
    RETURN QUERY SELECT j.* FROM {schema}.job j WHERE j.id = ANY (ids);
END $$;

-- The oldest candidates of several lanes, at most `at_most`, locked as they are found, so that nodes which claim at
-- the same time get different ones. Each lane is read for a fair share. A lane whose last candidate is older than the
-- newest one needed is read again, from there.
CREATE OR REPLACE FUNCTION {schema}.find_due(
    lanes int[], since timestamptz, when_ timestamptz, at_most int,
    OUT ids bigint[], OUT jobs bigint[], OUT again boolean   -- one of them had an attempt before
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    open_     int[] := lanes;
    after_due timestamptz[] := array_fill(since, ARRAY[cardinality(lanes)]);
    after_id  bigint[] := array_fill(0::bigint, ARRAY[cardinality(lanes)]);
    share     int;
    got_lanes int[];
    got_ids   bigint[];
    got_jobs  bigint[];
    got_dues  timestamptz[];
    got_again boolean;
    all_dues  timestamptz[] := '{}';
    last_due  timestamptz;   -- of the newest candidate that is needed
    last_id   bigint;
BEGIN
    ids := '{}';
    jobs := '{}';
    again := false;
    LOOP
        share := greatest((at_most + cardinality(open_) - 1) / cardinality(open_), 1);
        SELECT array_agg(f.lane), array_agg(f.id), array_agg(f.job), array_agg(f.due_at), bool_or(f.attempt > 0)
          INTO got_lanes, got_ids, got_jobs, got_dues, got_again
          FROM (SELECT l.lane, r.id, r.job, r.due_at, r.attempt
                  FROM unnest(open_, after_due, after_id) AS l (lane, due, id)
                 CROSS JOIN LATERAL (SELECT x.id, x.job, x.due_at, x.attempt FROM {schema}.run x
                                      WHERE x.lane = l.lane AND x.state = 'pending'
                                        AND (x.due_at, x.id) > (l.due, l.id) AND x.due_at <= when_
                                        AND (x.expires_at IS NULL OR x.expires_at > when_)
                                      ORDER BY x.due_at, x.id LIMIT share
                                        FOR NO KEY UPDATE SKIP LOCKED) r) f;
        EXIT WHEN got_ids IS NULL;
        ids := ids || got_ids;
        jobs := jobs || got_jobs;
        again := again OR got_again;
        all_dues := all_dues || got_dues;
        SELECT n.due, n.id INTO last_due, last_id
          FROM unnest(all_dues, ids) AS n (due, id) ORDER BY n.due, n.id OFFSET at_most - 1 LIMIT 1;
        SELECT array_agg(l.lane), array_agg(l.due), array_agg(l.id) INTO open_, after_due, after_id
          FROM (SELECT g.lane, (array_agg(g.due ORDER BY g.due DESC, g.id DESC))[1] AS due,
                       (array_agg(g.id ORDER BY g.due DESC, g.id DESC))[1] AS id
                  FROM unnest(got_lanes, got_dues, got_ids) AS g (lane, due, id)
                 GROUP BY g.lane HAVING count(*) = share) l
         WHERE last_due IS NULL OR (l.due, l.id) < (last_due, last_id);
        EXIT WHEN open_ IS NULL;
    END LOOP;
    SELECT array_agg(n.id ORDER BY n.due, n.id), array_agg(n.job ORDER BY n.due, n.id) INTO ids, jobs
      FROM (SELECT * FROM unnest(all_dues, ids, jobs) AS a (due, id, job) ORDER BY a.due, a.id LIMIT at_most) n;
END $$;

-- Claims due runs for a node.
--
-- Where a claim begins to look: a dead row stays in its index until no snapshot can see it (pg_dump may keep one for
-- hours), and a claim that looked from the beginning would step over every run since then. So a session remembers
-- what it saw, and passes it in again:
--
--   known, known_others   the lanes that its node may run, and the lanes of its functions in queues that the node
--                         does not serve (it settles their missed runs)
--   seen                  the snapshot of the last look
--   due_from              no run in `known` that is PENDING in `seen` is due before this instant
--   expires_from          no run in `known` or `known_others` expires before this instant
--
-- Each statement that makes a run PENDING, or moves one to another lane or another time (plan, request, backfill,
-- retry, give back, lose, end a wait, settle, change, resume), writes the number of its transaction into `entered`.
-- So a run that `seen` did not show has the number of a transaction that was in progress then or began later, and the
-- look reads these runs first. When and in which order they commit does not matter, nor whether their NOTIFY reaches
-- this session. A claim that is rolled back brings nothing new: for a look, which locks nothing, its runs were
-- PENDING all the time.
--
-- `server` identifies the server that counts the transactions. On another server, or one whose count has gone back,
-- the look starts from the beginning.
CREATE OR REPLACE FUNCTION {schema}.claim_runs(
    claimer uuid, of_application text, new_token text, at_most int, functions text[], served text[], as_of float8,
    known int[], known_others int[],
    INOUT server float8, INOUT seen pg_snapshot, INOUT due_from float8, INOUT expires_from float8,
    OUT lanes int[], OUT others int[],   -- NULL: as they are known
    OUT alive boolean, OUT at float8, OUT next_at float8, OUT more boolean, OUT missed boolean,
    OUT ids bigint[], OUT jobs bigint[], OUT generations bigint[], OUT keys text[], OUT kinds text[],
    OUT scheduled float8[], OUT ready float8[], OUT attempts int[], OUT failed int[], OUT arguments text[],
    OUT owing bigint[]   -- those of `ids` that owe followers; NULL: none
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    enough      CONSTANT int := 1000;   -- new runs; if there are more, looking from the beginning is as quick
    app         int;
    name_       text;
    now_        timestamptz := clock_timestamp();
    when_       timestamptz := coalesce(to_timestamp(as_of), now_);   -- decides what is due and what is missed
    saw         pg_snapshot := seen;
    mine        int[] := known;
    rest        int[] := known_others;
    first       timestamptz;   -- where to look from for due runs,
    first_end   timestamptz;   -- and for expired ones
    later       timestamptz;   -- when the next run is due
    next_due    timestamptz;
    new_due     timestamptz;
    new_end     timestamptz;
    new_runs    bigint;
    strange     boolean;    -- a new run is in a lane that is not known
    some_wait   boolean;
    due_lanes   int[];
    waits       bigint[];
    turns       bigint[];   -- runs that wait for pools and may get places
    pooled      boolean;    -- a candidate's job has a pool
    found_ids   bigint[];   -- candidates, oldest first
    found_jobs  bigint[];
    again       boolean;    -- one of them had an attempt before
    ranks       bigint[];   -- each candidate's place in the queue of its job, apart from those between two attempts
    different   bigint;     -- how many jobs
    locked      bigint[];
    free        bigint[];
BEGIN
    more := false;
    missed := false;
    at := date_part('epoch', now_);
    seen := pg_current_snapshot();   -- before everything that is read below
    SELECT n.id IS NOT NULL, a.id,
           EXISTS (SELECT FROM {schema}.run r WHERE r.application = a.id AND r.state = 'waiting')
      INTO alive, app, some_wait
      FROM {schema}.application a LEFT JOIN {schema}.node n ON n.id = claimer AND n.state = 'alive'
     WHERE a.name = of_application;
    IF NOT coalesce(alive, false) THEN
        alive := coalesce(alive, EXISTS (SELECT FROM {schema}.node n   -- there is no such application yet
                                          WHERE n.id = claimer AND n.state = 'alive'));
        seen := NULL;
        RETURN;
    END IF;

    -- What is new since the last look.
    IF server IS DISTINCT FROM date_part('epoch', pg_postmaster_start_time())
       OR pg_snapshot_xmax(seen) < pg_snapshot_xmax(saw) THEN
        saw := NULL;
    END IF;
    IF saw IS NOT NULL THEN
        SELECT count(*), min(n.due_at) FILTER (WHERE n.lane = ANY (mine)),
               min(n.expires_at) FILTER (WHERE n.lane = ANY (mine || rest)),
               bool_or(n.lane <> ALL (mine || rest))
          INTO new_runs, new_due, new_end, strange
          FROM (SELECT r.lane, r.due_at, r.expires_at FROM {schema}.run r
                 WHERE r.application = app AND r.state = 'pending' AND r.lane IS NOT NULL
                   AND r.entered >= pg_snapshot_xmax(saw)
                 ORDER BY r.entered LIMIT enough) n;
        -- Of the transactions in progress then, those that have ended. The others show nothing yet.
        IF pg_snapshot_xmin(saw) < pg_snapshot_xmax(saw) THEN
            SELECT new_runs + count(*), least(new_due, min(n.due_at) FILTER (WHERE n.lane = ANY (mine))),
                   least(new_end, min(n.expires_at) FILTER (WHERE n.lane = ANY (mine || rest))),
                   strange OR bool_or(n.lane <> ALL (mine || rest))
              INTO new_runs, new_due, new_end, strange
              FROM (SELECT r.lane, r.due_at, r.expires_at
                      FROM pg_snapshot_xip(saw) AS x (id)
                     CROSS JOIN LATERAL (SELECT o.lane, o.due_at, o.expires_at FROM {schema}.run o
                                          WHERE o.application = app AND o.state = 'pending' AND o.lane IS NOT NULL
                                            AND o.entered >= x.id AND o.entered <= x.id   -- as only `run_entered` can
                                          ORDER BY o.entered LIMIT enough) r
                     WHERE pg_visible_in_snapshot(x.id, seen) LIMIT enough) n;
        END IF;
        first := CASE WHEN new_runs >= enough THEN '-infinity' ELSE least(to_timestamp(due_from), new_due) END;
        first_end := CASE WHEN new_runs >= enough THEN '-infinity'
                          ELSE least(to_timestamp(expires_from), new_end) END;
        -- A new lane matters once it has a run: a new one, or one that waits. It may be older than the last look, which
        -- did not ask for lanes.
        IF strange OR some_wait OR new_runs >= enough THEN
            PERFORM 1 FROM {schema}.lanes_of(app, functions) l WHERE l.id <> ALL (mine || rest);
            IF FOUND THEN saw := NULL; END IF;
        END IF;
    END IF;
    IF saw IS NULL THEN
        server := date_part('epoch', pg_postmaster_start_time());
        SELECT coalesce(array_agg(l.id) FILTER (WHERE served IS NULL OR l.queue = ANY (served)), '{}'),
               coalesce(array_agg(l.id) FILTER (WHERE NOT l.queue = ANY (served)), '{}')
          INTO mine, rest FROM {schema}.lanes_of(app, functions) l;
        lanes := mine;
        others := rest;
        first := '-infinity';
        first_end := '-infinity';
    END IF;

    IF some_wait THEN
        SELECT {schema}.jobs_with_places(mine), {schema}.next_in_pools(app, mine) INTO waits, turns;
        IF waits IS NOT NULL OR turns IS NOT NULL THEN
            SELECT n.label INTO name_ FROM {schema}.node n
             WHERE n.id = claimer AND n.state = 'alive' FOR KEY SHARE;   -- as below
            alive := FOUND;
            IF NOT alive THEN seen := NULL; RETURN; END IF;
            first := least(first, {schema}.end_waits(app, waits), {schema}.end_waits_for_pools(app, turns));
        END IF;
    END IF;

    -- A look that locks and writes nothing: the first run of each lane.
    SELECT array_agg(l.lane ORDER BY f.due_at) FILTER (WHERE f.due_at <= when_), min(f.due_at),
           min(f.due_at) FILTER (WHERE f.due_at > when_)
      INTO due_lanes, first, later
      FROM unnest(mine) AS l (lane)
     CROSS JOIN LATERAL (SELECT r.due_at FROM {schema}.run r
                          WHERE r.lane = l.lane AND r.state = 'pending' AND r.due_at >= first
                          ORDER BY r.due_at, r.id LIMIT 1) f;
    first := coalesce(first, 'infinity');

    IF due_lanes IS NOT NULL THEN
        -- Only a live node gets runs. This lock does not delay beats. A declaration that this node is dead either waits
        -- for it or has committed before and is seen here: before the first run is locked, and until the claim commits.
        SELECT n.label INTO name_ FROM {schema}.node n WHERE n.id = claimer AND n.state = 'alive' FOR KEY SHARE;
        alive := FOUND;
        IF NOT alive THEN seen := NULL; RETURN; END IF;
        -- Runs are locked as they are found, so that nodes which claim at the same time get different ones.
        IF cardinality(due_lanes) = 1 THEN
            SELECT array_agg(c.id), array_agg(c.job), bool_or(c.attempt > 0) INTO found_ids, found_jobs, again
              FROM (SELECT r.id, r.job, r.attempt FROM {schema}.run r
                     WHERE r.lane = due_lanes[1] AND r.state = 'pending' AND r.due_at >= first AND r.due_at <= when_
                       AND (r.expires_at IS NULL OR r.expires_at > when_)
                     ORDER BY r.due_at, r.id LIMIT at_most
                       FOR NO KEY UPDATE SKIP LOCKED) c;
        ELSIF at_most > 0 THEN
            SELECT f.ids, f.jobs, f.again INTO found_ids, found_jobs, again
              FROM {schema}.find_due(due_lanes, first, when_, at_most) f;
        END IF;
    END IF;
    more := coalesce(cardinality(found_ids), 0) >= at_most;
    -- Apart from the arrays: to count them, PostgreSQL 16 and newer would sort them all by job, and their order would
    -- be lost.
    different := cardinality(found_jobs);
    IF different > 1 THEN
        different := (SELECT count(DISTINCT f.job) FROM unnest(found_jobs) AS f (job));
    END IF;

    IF found_ids IS NOT NULL THEN
        SELECT array_agg(l.id), bool_or(l.pool IS NOT NULL) INTO locked, pooled
          FROM (SELECT j.id, j.pool FROM {schema}.job j
                 WHERE j.id = ANY (found_jobs) AND j.state = 'active' AND j.max_running IS NOT NULL
                   FOR NO KEY UPDATE SKIP LOCKED) l;
        -- Jobs without a limit are locked only so that nothing begins after a pause has returned.
        IF coalesce(cardinality(locked), 0) < different THEN
            SELECT array_agg(l.id), coalesce(pooled, false) OR bool_or(l.pool IS NOT NULL) INTO free, pooled
              FROM (SELECT j.id, j.pool FROM {schema}.job j
                     WHERE j.id = ANY (found_jobs) AND j.state = 'active' AND j.max_running IS NULL
                       FOR KEY SHARE SKIP LOCKED) l;
            locked := locked || free;
        END IF;
        IF coalesce(cardinality(locked), 0) < different THEN
            SELECT array_agg(c.id ORDER BY c.place), array_agg(c.job ORDER BY c.place), count(DISTINCT c.job)
              INTO found_ids, found_jobs, different
              FROM unnest(found_ids, found_jobs) WITH ORDINALITY AS c (id, job, place) WHERE c.job = ANY (locked);
        END IF;
    END IF;
    IF found_ids IS NOT NULL THEN
        IF different < cardinality(found_ids) THEN
            SELECT array_agg(c.rank ORDER BY c.place) INTO ranks
              FROM (SELECT f.place,
                           row_number() OVER (PARTITION BY f.job, r.attempt > r.reopened
                                              -- Under `replace`, due times come last, the newest of them first.
                                              ORDER BY j.overlap = 'replace' AND r.kind = 'due',
                                                       CASE WHEN j.overlap = 'replace' AND r.kind = 'due'
                                                            THEN r.scheduled_for END DESC,
                                                       f.place) AS rank
                      FROM unnest(found_ids, found_jobs) WITH ORDINALITY AS f (id, job, place)
                      JOIN {schema}.run r ON r.id = f.id JOIN {schema}.job j ON j.id = f.job) c;
        END IF;
        IF pooled THEN
            SELECT e.ids, e.jobs, e.ranks INTO found_ids, found_jobs, ranks
              FROM {schema}.enter_pools(app, found_ids, found_jobs, ranks) e;
        END IF;
        IF again THEN   -- rarely; a run that had an attempt is always claimed
            PERFORM {schema}.keep_attempts(found_ids);
        END IF;
        -- A later statement than the one that locked the jobs: it counts what other sessions did before they unlocked
        -- them.
        WITH claimed AS (
            UPDATE {schema}.run r
               SET state = 'running', token = new_token, node = claimer, label = name_,
                   attempt = least(r.attempt, 2147483646) + 1, claimed_at = now_, generation = j.generation,
                   reason = '', outcome = NULL, started_at = NULL, finished_at = NULL, pool = j.pool
              FROM unnest(found_ids, found_jobs, ranks) AS c (id, job, rank), {schema}.job j
             WHERE r.id = c.id AND j.id = c.job
               AND CASE WHEN j.max_running IS NULL OR r.attempt > r.reopened THEN true
                        ELSE (SELECT count(*) FROM {schema}.run b
                               WHERE b.job = c.job AND b.attempt - b.reopened > 0 AND b.state <= 'running')
                             <= j.max_running - coalesce(c.rank, 1) END
            RETURNING r.id, r.job, r.generation, r.key, r.kind, r.scheduled_for, r.due_at, r.attempt, r.failures,
                      r.kwargs, r.owes
        )
        SELECT array_agg(c.id), array_agg(c.job), array_agg(c.generation), array_agg(c.key), array_agg(c.kind::text),
               array_agg(date_part('epoch', c.scheduled_for)), array_agg(date_part('epoch', c.due_at)),
               array_agg(c.attempt), array_agg(c.failures), array_agg(c.kwargs),
               array_agg(c.id) FILTER (WHERE c.owes)
          INTO ids, jobs, generations, keys, kinds, scheduled, ready, attempts, failed, arguments, owing
          FROM (SELECT * FROM claimed ORDER BY due_at, id) c;
        IF coalesce(cardinality(ids), 0) < cardinality(found_ids) THEN
            PERFORM {schema}.hold_back(app, ARRAY(SELECT c.id FROM unnest(found_ids) AS c (id)
                                                   WHERE c.id <> ALL (coalesce(ids, '{}'))),
                                       coalesce(ids, '{}'), now_);
        END IF;
    END IF;

    IF NOT more AND due_lanes IS NOT NULL THEN   -- other sessions have locked what is still due, usually for a moment
        SELECT bool_or(f.due_at <= when_), min(f.due_at) INTO more, next_due
          FROM unnest(due_lanes) AS l (lane)
         CROSS JOIN LATERAL (SELECT r.due_at FROM {schema}.run r
                              WHERE r.lane = l.lane AND r.state = 'pending' AND r.due_at >= first
                                AND (r.expires_at IS NULL OR r.expires_at > when_ OR r.due_at > when_)
                              ORDER BY r.due_at, r.id LIMIT 1) f;
        more := coalesce(more, false);
    END IF;
    IF more THEN
        SELECT min(f.due_at) INTO next_due
          FROM unnest(due_lanes) AS l (lane)
         CROSS JOIN LATERAL (SELECT r.due_at FROM {schema}.run r
                              WHERE r.lane = l.lane AND r.state = 'pending' AND r.due_at > when_
                              ORDER BY r.due_at, r.id LIMIT 1) f;
    END IF;
    later := least(later, next_due);   -- `later` is known from the lanes where nothing was due
    next_at := date_part('epoch', later);
    -- The search for runs that expire reaches a second ahead, so that not every claim has to repeat it.
    IF first_end <= when_ THEN
        SELECT coalesce(min(f.expires_at), when_ + interval '1 s') INTO first_end
          FROM unnest(mine || rest) AS l (lane)
         CROSS JOIN LATERAL (SELECT r.expires_at FROM {schema}.run r
                              WHERE r.lane = l.lane AND r.state = 'pending' AND r.expires_at >= first_end
                                AND r.expires_at <= when_ + interval '1 s'
                              ORDER BY r.expires_at LIMIT 1) f;   -- ORDER BY, so that the index `run_expires` serves
        missed := first_end <= when_;
    END IF;
    due_from := date_part('epoch', first);
    expires_from := date_part('epoch', first_end);
END $$;
