-- What nodes do, many thousand times a second: claim and finish; and what they do about the dead. For the settings see 004_planning.sql.
--
-- Counts stop at what an int can hold, so that a senseless one in a single row cannot make a statement about many fail.

-- How many runs of a job have a place: they began and are not final.
CREATE FUNCTION {schema}.began(of_job bigint) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) FROM {schema}.run r WHERE r.job = of_job AND r.attempt > 0 AND r.state <= 'running'
$$;

-- Jobs in these lanes of which runs wait though there are places. Looked at without a lock.
CREATE FUNCTION {schema}.jobs_with_places(lanes int[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
BEGIN
    RETURN (
        WITH RECURSIVE waits AS (   -- from job to job, however many runs wait
            SELECT l.lane, w.job FROM unnest(lanes) AS l (lane)
             CROSS JOIN LATERAL (SELECT r.job FROM {schema}.run r WHERE r.lane = l.lane AND r.state = 'waiting' ORDER BY r.job LIMIT 1) w
            UNION ALL
            SELECT w.lane, (SELECT r.job FROM {schema}.run r WHERE r.lane = w.lane AND r.state = 'waiting' AND r.job > w.job
                             ORDER BY r.job LIMIT 1)
              FROM waits w WHERE w.job IS NOT NULL
        )
        SELECT array_agg(j.id) FROM waits w JOIN {schema}.job j ON j.id = w.job
         WHERE j.state = 'active' AND (j.max_running IS NULL OR {schema}.began(j.id) < j.max_running));
END $$;

-- WAITING runs of these jobs become PENDING, oldest first, as many as there are places. What waited is never missed.
-- Returns the least `due_at` among them.
CREATE FUNCTION {schema}.end_waits(app int, jobs bigint[]) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
DECLARE
    locked bigint[];
    first  timestamptz;
BEGIN
    SELECT array_agg(l.id) INTO locked
      FROM (SELECT j.id FROM {schema}.job j WHERE j.id = ANY (jobs) AND j.state = 'active' FOR NO KEY UPDATE SKIP LOCKED) l;
    IF locked IS NULL THEN RETURN NULL; END IF;
    WITH ended AS (   -- counted again, under the locks
        UPDATE {schema}.run r SET state = 'pending', expires_at = NULL, entered = pg_current_xact_id()
          FROM unnest(locked) AS l (id) JOIN {schema}.job j ON j.id = l.id
               CROSS JOIN LATERAL (SELECT w.id FROM {schema}.run w WHERE w.application = app AND w.job = l.id AND w.state = 'waiting'
                                    ORDER BY w.due_at, w.id
                                    LIMIT CASE WHEN j.max_running IS NOT NULL THEN greatest(j.max_running - {schema}.began(l.id), 0) END) o
         WHERE r.id = o.id
        RETURNING r.due_at
    )
    SELECT min(e.due_at) INTO first FROM ended e;
    RETURN first;
END $$;

-- Candidates that found no place wait or are skipped, as their jobs have it. Their jobs are locked. Under `replace` the RUNNING ones are
-- asked to end, unless a newer due time begins just now: then there is nothing to wait for.
CREATE FUNCTION {schema}.hold_back(app int, candidates bigint[], claimed bigint[], now_ timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
DECLARE
    replaced    bigint[];   -- jobs whose newest due time was claimed
    newest_only bigint[];   -- others of which but the newest waits
BEGIN
    SELECT array_agg(DISTINCT r.job) INTO replaced
      FROM unnest(claimed) AS c (id) JOIN {schema}.run r ON r.id = c.id JOIN {schema}.job j ON j.id = r.job
     WHERE r.kind = 'due' AND r.attempt = 1 AND j.overlap = 'replace';
    SELECT array_agg(DISTINCT r.job) INTO newest_only
      FROM unnest(candidates) AS c (id) JOIN {schema}.run r ON r.id = c.id JOIN {schema}.job j ON j.id = r.job
     WHERE r.kind = 'due' AND j.overlap IN ('wait', 'replace') AND j.id <> ALL (coalesce(replaced, '{}'));
    UPDATE {schema}.run r
       SET state = CASE WHEN x.why <> '' THEN 'skipped' ELSE 'waiting' END::{schema}.run_state, reason = x.why,
           finished_at = CASE WHEN x.why <> '' THEN now_ END
      FROM (SELECT o.id, CASE WHEN o.kind <> 'due' THEN ''
                              WHEN j.overlap = 'skip' THEN 'overlap'
                              WHEN j.id = ANY (replaced) THEN 'superseded'
                              ELSE '' END AS why
              FROM unnest(candidates) AS c (id) JOIN {schema}.run o ON o.id = c.id JOIN {schema}.job j ON j.id = o.job) x
     WHERE r.id = x.id;
    IF newest_only IS NULL THEN RETURN; END IF;
    UPDATE {schema}.run r SET state = 'skipped', reason = 'superseded', finished_at = now_
      FROM unnest(newest_only) AS n (job)
     WHERE r.application = app AND r.job = n.job AND r.state = 'waiting' AND r.kind = 'due'
       AND EXISTS (SELECT FROM {schema}.run o
                    WHERE o.application = app AND o.job = n.job AND o.state = 'waiting' AND o.kind = 'due'
                      AND (o.scheduled_for, o.id) > (r.scheduled_for, r.id));
    UPDATE {schema}.run r SET asked_to_end = 'replaced'
     WHERE r.id IN (SELECT o.id FROM unnest(newest_only) AS n (job)
                      JOIN {schema}.job j ON j.id = n.job JOIN {schema}.run o ON o.job = n.job
                     WHERE j.overlap = 'replace' AND o.asked_to_end = '' AND o.id <> ALL (claimed)
                       AND o.attempt > 0 AND o.state <= 'running' AND o.token IS NOT NULL   -- is running; said so, `run_running` might be read
                       FOR NO KEY UPDATE OF o SKIP LOCKED);
END $$;

-- What claims do not bring with every run.
CREATE FUNCTION {schema}.jobs_by_id(ids bigint[]) RETURNS SETOF {schema}.job
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
BEGIN
    RETURN QUERY SELECT j.* FROM {schema}.job j WHERE j.id = ANY (ids);
END $$;

-- The oldest candidates of several lanes, `at_most` of them, locked as they are found: that gives nodes that claim at the same time different
-- ones. Each lane is asked for a fair share; one whose last candidate is older than the newest that is needed is asked again, from there.
CREATE FUNCTION {schema}.find_due(lanes int[], since timestamptz, when_ timestamptz, at_most int, OUT ids bigint[], OUT jobs bigint[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
DECLARE
    open_     int[] := lanes;
    after_due timestamptz[] := array_fill(since, ARRAY[cardinality(lanes)]);
    after_id  bigint[] := array_fill(0::bigint, ARRAY[cardinality(lanes)]);
    share     int;
    got_lanes int[];
    got_ids   bigint[];
    got_jobs  bigint[];
    got_dues  timestamptz[];
    all_dues  timestamptz[] := '{}';
    last_due  timestamptz;   -- of the newest candidate that is needed
    last_id   bigint;
BEGIN
    ids := '{}';
    jobs := '{}';
    LOOP
        share := greatest((at_most + cardinality(open_) - 1) / cardinality(open_), 1);
        SELECT array_agg(f.lane), array_agg(f.id), array_agg(f.job), array_agg(f.due_at) INTO got_lanes, got_ids, got_jobs, got_dues
          FROM (SELECT l.lane, r.id, r.job, r.due_at
                  FROM unnest(open_, after_due, after_id) AS l (lane, due, id)
                 CROSS JOIN LATERAL (SELECT x.id, x.job, x.due_at FROM {schema}.run x
                                      WHERE x.lane = l.lane AND x.state = 'pending' AND (x.due_at, x.id) > (l.due, l.id) AND x.due_at <= when_
                                        AND (x.expires_at IS NULL OR x.expires_at > when_)
                                      ORDER BY x.due_at, x.id LIMIT share
                                        FOR NO KEY UPDATE SKIP LOCKED) r) f;
        EXIT WHEN got_ids IS NULL;
        ids := ids || got_ids;
        jobs := jobs || got_jobs;
        all_dues := all_dues || got_dues;
        SELECT n.due, n.id INTO last_due, last_id FROM unnest(all_dues, ids) AS n (due, id) ORDER BY n.due, n.id OFFSET at_most - 1 LIMIT 1;
        SELECT array_agg(l.lane), array_agg(l.due), array_agg(l.id) INTO open_, after_due, after_id
          FROM (SELECT g.lane, (array_agg(g.due ORDER BY g.due DESC, g.id DESC))[1] AS due,
                       (array_agg(g.id ORDER BY g.due DESC, g.id DESC))[1] AS id
                  FROM unnest(got_lanes, got_dues, got_ids) AS g (lane, due, id) GROUP BY g.lane HAVING count(*) = share) l
         WHERE last_due IS NULL OR (l.due, l.id) < (last_due, last_id);
        EXIT WHEN open_ IS NULL;
    END LOOP;
    SELECT array_agg(n.id ORDER BY n.due, n.id), array_agg(n.job ORDER BY n.due, n.id) INTO ids, jobs
      FROM (SELECT * FROM unnest(all_dues, ids, jobs) AS a (due, id, job) ORDER BY a.due, a.id LIMIT at_most) n;
END $$;

-- Where a claim begins to look. A dead row stays in its index until no snapshot can see it (pg_dump may keep one for hours), and a claim
-- that looked from the beginning would pass by every run since. So a session remembers what it saw, and hands it in again:
--
--   known, others   what its node may run, and the lanes of its functions in queues that it does not serve (whose missed runs it settles)
--   seen            the snapshot of the last look
--   due_from        no run in `known` that is PENDING in `seen` is due before,
--   expires_from    and none in `known` or `others` expires before
--
-- Whatever makes a run PENDING, or moves one to another lane or to another time (planned, asked for, backfilled, retried, given back,
-- lost, no longer waiting, settled, changed, resumed), writes the number of its transaction into `entered`. What was not yet visible in
-- `seen` therefore has the number of a transaction that was in progress then, or began later; the look takes what these have brought
-- into account first. So it does not matter when they commit, in which order, and whether their NOTIFY reaches this session. A claim
-- that is rolled back brings nothing: to a look, which locks nothing, its runs were PENDING all along.
--
-- `server` says which server counts transactions so; another one, or one that has gone back, is looked at from the beginning.
CREATE FUNCTION {schema}.claim_runs(
    claimer uuid, of_application text, new_token text, at_most int, functions text[], served text[], as_of float8,
    known int[], known_others int[], INOUT server float8, INOUT seen pg_snapshot, INOUT due_from float8, INOUT expires_from float8,
    OUT lanes int[], OUT others int[],   -- NULL: as they are known
    OUT alive boolean, OUT at float8, OUT next_at float8, OUT more boolean, OUT missed boolean,
    OUT ids bigint[], OUT jobs bigint[], OUT generations bigint[], OUT keys text[], OUT kinds text[],
    OUT scheduled float8[], OUT ready float8[], OUT attempts int[], OUT failed int[], OUT arguments text[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
DECLARE
    enough      CONSTANT int := 1000;   -- newcomers; if there are more it is as quick to look from the beginning
    app         int;
    name_       text;
    now_        timestamptz := clock_timestamp();
    when_       timestamptz := coalesce(to_timestamp(as_of), now_);   -- by which it is decided what is due and what is missed
    saw         pg_snapshot := seen;
    mine        int[] := known;
    rest        int[] := known_others;
    first       timestamptz;   -- where to look from …
    first_end   timestamptz;   -- … for what has expired
    later       timestamptz;   -- when the next one is due
    next_due    timestamptz;
    new_due     timestamptz;
    new_end     timestamptz;
    new_runs    bigint;
    strange     boolean;     -- there is one in a lane that is not known
    some_wait   boolean;
    due_lanes   int[];
    waits       bigint[];
    found_ids   bigint[];   -- candidates, oldest first
    found_jobs  bigint[];
    ranks       bigint[];   -- each one's place in the queue of its job, those between attempts aside
    different   bigint;     -- how many jobs
    locked      bigint[];
    free        bigint[];
BEGIN
    more := false;
    missed := false;
    at := date_part('epoch', now_);
    seen := pg_current_snapshot();   -- before everything that is looked at below
    SELECT n.id IS NOT NULL, a.id, EXISTS (SELECT FROM {schema}.run r WHERE r.application = a.id AND r.state = 'waiting') INTO alive, app, some_wait
      FROM {schema}.application a LEFT JOIN {schema}.node n ON n.id = claimer AND n.state = 'alive'
     WHERE a.name = of_application;
    IF NOT coalesce(alive, false) THEN
        alive := coalesce(alive, EXISTS (SELECT FROM {schema}.node n WHERE n.id = claimer AND n.state = 'alive'));   -- no such application yet
        seen := NULL;
        RETURN;
    END IF;

    -- What is new since the last look.
    IF server IS DISTINCT FROM date_part('epoch', pg_postmaster_start_time()) OR pg_snapshot_xmax(seen) < pg_snapshot_xmax(saw) THEN
        saw := NULL;
    END IF;
    IF saw IS NOT NULL THEN
        SELECT count(*), min(n.due_at) FILTER (WHERE n.lane = ANY (mine)), min(n.expires_at) FILTER (WHERE n.lane = ANY (mine || rest)),
               bool_or(n.lane <> ALL (mine || rest))
          INTO new_runs, new_due, new_end, strange
          FROM (SELECT r.lane, r.due_at, r.expires_at FROM {schema}.run r
                 WHERE r.application = app AND r.state = 'pending' AND r.lane IS NOT NULL AND r.entered >= pg_snapshot_xmax(saw)
                 ORDER BY r.entered LIMIT enough) n;
        IF pg_snapshot_xmin(saw) < pg_snapshot_xmax(saw) THEN   -- of those in progress then, the ones that have ended: the others have nothing to show yet
            SELECT new_runs + count(*), least(new_due, min(n.due_at) FILTER (WHERE n.lane = ANY (mine))),
                   least(new_end, min(n.expires_at) FILTER (WHERE n.lane = ANY (mine || rest))), strange OR bool_or(n.lane <> ALL (mine || rest))
              INTO new_runs, new_due, new_end, strange
              FROM (SELECT r.lane, r.due_at, r.expires_at
                      FROM pg_snapshot_xip(saw) AS x (id)
                     CROSS JOIN LATERAL (SELECT o.lane, o.due_at, o.expires_at FROM {schema}.run o
                                          WHERE o.application = app AND o.state = 'pending' AND o.lane IS NOT NULL
                                            AND o.entered >= x.id AND o.entered <= x.id   -- in this order, which only its own index has
                                          ORDER BY o.entered LIMIT enough) r
                     WHERE pg_visible_in_snapshot(x.id, seen) LIMIT enough) n;
        END IF;
        first := CASE WHEN new_runs >= enough THEN '-infinity' ELSE least(to_timestamp(due_from), new_due) END;
        first_end := CASE WHEN new_runs >= enough THEN '-infinity' ELSE least(to_timestamp(expires_from), new_end) END;
        -- A new lane matters once a run is in it: a new one, or one that waits.
        IF strange OR some_wait OR new_runs >= enough THEN
            PERFORM 1 FROM {schema}.lane l
              WHERE l.application = app AND l.entered >= pg_snapshot_xmin(saw) AND NOT pg_visible_in_snapshot(l.entered, saw)
                AND l.entered < pg_snapshot_xmax(seen);   -- not of another server, restored from a dump
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
        waits := {schema}.jobs_with_places(mine);
        IF waits IS NOT NULL THEN
            SELECT n.label INTO name_ FROM {schema}.node n WHERE n.id = claimer AND n.state = 'alive' FOR KEY SHARE;   -- as below
            alive := FOUND;
            IF NOT alive THEN seen := NULL; RETURN; END IF;
            first := least(first, {schema}.end_waits(app, waits));
        END IF;
    END IF;

    -- A look that locks and writes nothing: the first run of each lane.
    SELECT array_agg(l.lane ORDER BY f.due_at) FILTER (WHERE f.due_at <= when_), min(f.due_at), min(f.due_at) FILTER (WHERE f.due_at > when_)
      INTO due_lanes, first, later
      FROM unnest(mine) AS l (lane)
     CROSS JOIN LATERAL (SELECT r.due_at FROM {schema}.run r
                          WHERE r.lane = l.lane AND r.state = 'pending' AND r.due_at >= first ORDER BY r.due_at, r.id LIMIT 1) f;
    first := coalesce(first, 'infinity');

    IF due_lanes IS NOT NULL THEN
        -- Only who is alive is given runs. Beats pass beside this lock; a declaration of our own death waits for it, or has been
        -- committed when we have it and is seen: before the first run is locked, and until what is claimed is committed.
        SELECT n.label INTO name_ FROM {schema}.node n WHERE n.id = claimer AND n.state = 'alive' FOR KEY SHARE;
        alive := FOUND;
        IF NOT alive THEN seen := NULL; RETURN; END IF;
        -- Locking the runs as they are found gives nodes that claim at the same time different ones.
        IF cardinality(due_lanes) = 1 THEN
            SELECT array_agg(c.id), array_agg(c.job) INTO found_ids, found_jobs
              FROM (SELECT r.id, r.job FROM {schema}.run r
                     WHERE r.lane = due_lanes[1] AND r.state = 'pending' AND r.due_at >= first AND r.due_at <= when_
                       AND (r.expires_at IS NULL OR r.expires_at > when_)
                     ORDER BY r.due_at, r.id LIMIT at_most
                       FOR NO KEY UPDATE SKIP LOCKED) c;
        ELSIF at_most > 0 THEN
            SELECT f.ids, f.jobs INTO found_ids, found_jobs FROM {schema}.find_due(due_lanes, first, when_, at_most) f;
        END IF;
    END IF;
    more := coalesce(cardinality(found_ids), 0) >= at_most;
    -- Not together with the arrays: PostgreSQL would sort all of it by job to count (16 and newer), and they would not be in order.
    different := cardinality(found_jobs);
    IF different > 1 THEN
        different := (SELECT count(DISTINCT f.job) FROM unnest(found_jobs) AS f (job));
    END IF;

    IF found_ids IS NOT NULL THEN
        SELECT array_agg(l.id) INTO locked
          FROM (SELECT j.id FROM {schema}.job j WHERE j.id = ANY (found_jobs) AND j.state = 'active' AND j.max_running IS NOT NULL
                   FOR NO KEY UPDATE SKIP LOCKED) l;
        IF coalesce(cardinality(locked), 0) < different THEN   -- without a limit: nothing begins after a pause has returned, no more
            SELECT array_agg(l.id) INTO free
              FROM (SELECT j.id FROM {schema}.job j WHERE j.id = ANY (found_jobs) AND j.state = 'active' AND j.max_running IS NULL
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
              FROM (SELECT f.place, row_number() OVER (PARTITION BY f.job, r.attempt > 0
                                                       ORDER BY j.overlap = 'replace' AND r.kind = 'due',   -- last, and the newest of them first
                                                                CASE WHEN j.overlap = 'replace' AND r.kind = 'due' THEN r.scheduled_for END DESC,
                                                                f.place) AS rank
                      FROM unnest(found_ids, found_jobs) WITH ORDINALITY AS f (id, job, place)
                      JOIN {schema}.run r ON r.id = f.id JOIN {schema}.job j ON j.id = f.job) c;
        END IF;
        -- A later statement than the one that locked the jobs: it counts what others did before they let go.
        WITH claimed AS (
            UPDATE {schema}.run r
               SET state = 'running', token = new_token, node = claimer, label = name_, attempt = least(r.attempt, 2147483646) + 1, claimed_at = now_,
                   generation = j.generation, reason = '', started_at = NULL, finished_at = NULL
              FROM unnest(found_ids, found_jobs, ranks) AS c (id, job, rank), {schema}.job j
             WHERE r.id = c.id AND j.id = c.job
               AND CASE WHEN j.max_running IS NULL OR r.attempt > 0 THEN true
                        ELSE (SELECT count(*) FROM {schema}.run b WHERE b.job = c.job AND b.attempt > 0 AND b.state <= 'running')
                             <= j.max_running - coalesce(c.rank, 1) END
            RETURNING r.id, r.job, r.generation, r.key, r.kind, r.scheduled_for, r.due_at, r.attempt, r.failures, r.kwargs
        )
        SELECT array_agg(c.id), array_agg(c.job), array_agg(c.generation), array_agg(c.key), array_agg(c.kind::text),
               array_agg(date_part('epoch', c.scheduled_for)), array_agg(date_part('epoch', c.due_at)),
               array_agg(c.attempt), array_agg(c.failures), array_agg(c.kwargs)
          INTO ids, jobs, generations, keys, kinds, scheduled, ready, attempts, failed, arguments
          FROM (SELECT * FROM claimed ORDER BY due_at, id) c;
        IF coalesce(cardinality(ids), 0) < cardinality(found_ids) THEN
            PERFORM {schema}.hold_back(app, ARRAY(SELECT c.id FROM unnest(found_ids) AS c (id) WHERE c.id <> ALL (coalesce(ids, '{}'))),
                                       coalesce(ids, '{}'), now_);
        END IF;
    END IF;

    IF NOT more AND due_lanes IS NOT NULL THEN   -- those that are still due others have locked, or their jobs: for a moment, as a rule
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
         CROSS JOIN LATERAL (SELECT r.due_at FROM {schema}.run r WHERE r.lane = l.lane AND r.state = 'pending' AND r.due_at > when_
                              ORDER BY r.due_at, r.id LIMIT 1) f;
    END IF;
    later := least(later, next_due);   -- of the lanes where nothing was due it is known
    next_at := date_part('epoch', later);
    -- What expires is looked for a second ahead, so that not every claim has to.
    IF first_end <= when_ THEN
        SELECT coalesce(min(f.expires_at), when_ + interval '1 s') INTO first_end
          FROM unnest(mine || rest) AS l (lane)
         CROSS JOIN LATERAL (SELECT r.expires_at FROM {schema}.run r
                              WHERE r.lane = l.lane AND r.state = 'pending' AND r.expires_at >= first_end AND r.expires_at <= when_ + interval '1 s'
                              ORDER BY r.expires_at LIMIT 1) f;   -- sorted, so that the index of what expires is the one to ask
        missed := first_end <= when_;
    END IF;
    due_from := date_part('epoch', first);
    expires_from := date_part('epoch', first_end);
END $$;

-- Nothing waits here: a run that another transaction has locked, or that would become PENDING while its job is locked, is left as it is, and the
-- answer for it is NULL in `accepted`: busy, to be sent again. Three NULLs say the usual thing: all accepted, all as was said, nobody waits.
CREATE FUNCTION {schema}.finish_runs(
    ids bigint[], tokens text[], states text[], reasons text[], again float8[], started float8[], finished float8[],
    OUT accepted boolean[], OUT became text[], OUT wakes boolean[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
DECLARE
    now_    timestamptz := clock_timestamp();
    returns boolean := 'pending' = ANY (states);
    jobs    bigint[];   -- of what becomes PENDING, locked
    done    bigint[];
    all_    boolean;
    apps    int[];
BEGIN
    IF returns THEN   -- a removal must not miss what becomes PENDING
        SELECT array_agg(l.id) INTO jobs
          FROM (SELECT j.id FROM {schema}.job j
                 WHERE j.id = ANY (ARRAY(SELECT r.job FROM unnest(ids, states) AS x (id, state) JOIN {schema}.run r ON r.id = x.id
                                          WHERE x.state = 'pending'))
                   FOR KEY SHARE SKIP LOCKED) l;
        WITH mine AS MATERIALIZED (
            SELECT r.id AS run, r.job, r.kind, r.attempt, r.asked_to_end, x.*
              FROM unnest(ids, tokens, states, reasons, again, started, finished) AS x (id, token, state, reason, again, started, finished)
              JOIN {schema}.run r ON r.id = x.id AND r.token = x.token AND (x.state <> 'pending' OR r.job = ANY (jobs))
               FOR NO KEY UPDATE OF r SKIP LOCKED
        ), ended AS (
            UPDATE {schema}.run r
               SET state = x.becomes, token = NULL, asked_to_end = '', stopping = false, lane = x.lane, entered = pg_current_xact_id(),
                   attempt = greatest(r.attempt, 1) - CASE WHEN x.unbegun THEN 1 ELSE 0 END,
                   interruptions = least(r.interruptions, 2147483646) + CASE WHEN x.interrupted THEN 1 ELSE 0 END,
                   failures = least(r.failures, 2147483646) + CASE WHEN x.state = 'failed' OR x.again IS NOT NULL THEN 1 ELSE 0 END,
                   reason = CASE WHEN x.becomes = 'cancelled'
                                 THEN coalesce(CASE WHEN x.state = 'cancelled' THEN nullif(x.reason, '') END, nullif(r.asked_to_end, ''),
                                               CASE WHEN x.state = 'pending' THEN 'removed' ELSE '' END)
                                 WHEN x.becomes = 'skipped' THEN 'paused'
                                 WHEN x.interrupted THEN 'its node was stopped'
                                 WHEN x.unbegun THEN '' ELSE coalesce(x.reason, '') END,
                   due_at = CASE WHEN x.again IS NULL OR x.becomes <> 'pending' THEN r.due_at
                                 ELSE coalesce(to_timestamp(x.finished), now_) + make_interval(secs => x.again) END,
                   expires_at = CASE WHEN x.becomes <> 'pending' OR r.expires_at IS NULL THEN r.expires_at
                                     WHEN x.unbegun THEN greatest(r.expires_at, now_ + make_interval(secs => x.on_time)) END,
                   label = CASE WHEN x.unbegun AND r.attempt <= 1 THEN '' ELSE r.label END,
                   claimed_at = CASE WHEN x.unbegun AND r.attempt <= 1 THEN NULL ELSE r.claimed_at END,
                   started_at = to_timestamp(x.started),
                   finished_at = CASE WHEN x.becomes > 'running' THEN coalesce(to_timestamp(x.finished), now_) END
              FROM (SELECT m.*, j.on_time, j.lane,
                           m.state = 'pending' AND m.again IS NULL AND m.started IS NULL AS unbegun,
                           m.state = 'pending' AND m.again IS NULL AND m.started IS NOT NULL AS interrupted,
                           CASE WHEN m.state <> 'pending' THEN m.state
                                WHEN m.asked_to_end <> '' THEN 'cancelled'
                                -- Never begun: as if the pause had found it unclaimed.
                                WHEN j.state = 'paused' AND m.again IS NULL AND m.started IS NULL AND m.kind = 'due' AND m.attempt <= 1 THEN 'skipped'
                                WHEN m.again IS NULL AND m.started IS NOT NULL AND (j.state = 'removed' OR j.on_lost = 'fail') THEN 'lost'
                                WHEN j.state <> 'removed' THEN 'pending'
                                WHEN m.again IS NULL THEN 'cancelled'
                                ELSE 'failed' END::{schema}.run_state AS becomes
                      FROM mine m JOIN {schema}.job j ON j.id = m.job OFFSET 0) x
             WHERE r.id = x.run
            RETURNING r.id, r.application
        )
        SELECT array_agg(e.id), array_agg(DISTINCT e.application) INTO done, apps FROM ended e;
    ELSE
        WITH mine AS MATERIALIZED (   -- found by id and token: a test of `state` would call for the wrong index
            SELECT r.id AS run, x.state, x.reason, x.started, x.finished
              FROM unnest(ids, tokens, states, reasons, started, finished) AS x (id, token, state, reason, started, finished)
              JOIN {schema}.run r ON r.id = x.id AND r.token = x.token
               FOR NO KEY UPDATE OF r SKIP LOCKED
        ), ended AS (
            UPDATE {schema}.run r
               SET state = x.state::{schema}.run_state, token = NULL, asked_to_end = '', stopping = false,
                   failures = least(r.failures, 2147483646) + CASE WHEN x.state = 'failed' THEN 1 ELSE 0 END,
                   reason = CASE WHEN x.state = 'cancelled' THEN coalesce(nullif(x.reason, ''), r.asked_to_end) ELSE coalesce(x.reason, '') END,
                   started_at = to_timestamp(x.started), finished_at = coalesce(to_timestamp(x.finished), now_)
              FROM mine x
             WHERE r.id = x.run
            RETURNING r.id, r.application
        )
        SELECT array_agg(e.id), array_agg(DISTINCT e.application) INTO done, apps FROM ended e;
    END IF;
    all_ := coalesce(cardinality(done), 0) = cardinality(ids);
    IF all_ AND NOT returns AND NOT EXISTS (SELECT FROM {schema}.run w WHERE w.application = ANY (apps) AND w.state = 'waiting') THEN
        RETURN;
    END IF;

    done := coalesce(done, '{}');
    SELECT array_agg(CASE WHEN all_ OR x.id = ANY (done) THEN true
                          WHEN r.token = x.token THEN NULL   -- it is still this attempt's: busy
                          ELSE false END ORDER BY x.place),
           array_agg(coalesce(r.state::text, 'lost') ORDER BY x.place),
           array_agg((all_ OR x.id = ANY (done)) AND j.state = 'active'
                     AND EXISTS (SELECT FROM {schema}.run w WHERE w.application = r.application AND w.job = r.job AND w.state = 'waiting')
                     AND (j.max_running IS NULL OR {schema}.began(j.id) < j.max_running) ORDER BY x.place)
      INTO accepted, became, wakes
      FROM unnest(ids, tokens) WITH ORDINALITY AS x (id, token, place) LEFT JOIN {schema}.run r ON r.id = x.id LEFT JOIN {schema}.job j ON j.id = r.job;
    PERFORM {schema}.wake(n.application)
       FROM (SELECT DISTINCT r.application FROM unnest(ids, became, wakes, accepted) AS x (id, became, wakes, accepted)
               JOIN {schema}.run r ON r.id = x.id WHERE x.accepted AND (x.wakes OR x.became = 'pending')) n;
END $$;

-- Runs that this node was given and does not have; how many went back. One that is busy is named by the next roll call again.
CREATE FUNCTION {schema}.put_back_runs(ids bigint[], tokens text[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT count(*)
              FROM {schema}.finish_runs(ids, tokens, array_fill('pending'::text, ARRAY[cardinality(ids)]), NULL, NULL, NULL, NULL) f,
                   unnest(f.accepted) AS a (accepted)
             WHERE a.accepted);
END $$;

-- With `stops` the caller was asked to stop: what it has is marked, so that it counts as interrupted and not as lost if the caller is gone next.
CREATE FUNCTION {schema}.roll_call(caller uuid, of_application text, stops boolean,
    OUT at float8, OUT held_ids bigint[], OUT held_tokens text[], OUT held_asked text[], OUT held_must_answer boolean[], OUT lost_ids bigint[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
DECLARE
    app   int;
    gone  uuid[];
    jobs  bigint[];
    now_  timestamptz := clock_timestamp();
BEGIN
    at := date_part('epoch', now_);
    SELECT a.id INTO app FROM {schema}.application a WHERE a.name = of_application;
    SELECT array_agg(DISTINCT r.node) INTO gone   -- between the live nodes: beside an old snapshot these have many dead entries
      FROM (SELECT n.id AS node, lead(n.id) OVER (ORDER BY n.id) AS next FROM {schema}.node n WHERE n.state = 'alive'
            UNION ALL
            SELECT NULL, (SELECT n.id FROM {schema}.node n WHERE n.state = 'alive' ORDER BY n.id LIMIT 1)) live
      CROSS JOIN LATERAL unnest(ARRAY(SELECT o.node FROM {schema}.run o
                                       WHERE o.application = app AND o.state = 'running'
                                         AND o.node > coalesce(live.node, '00000000-0000-0000-0000-000000000000')
                                         AND o.node < coalesce(live.next, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))) AS r (node);
    IF gone IS NOT NULL THEN
        SELECT array_agg(l.id) INTO jobs
          FROM (SELECT j.id FROM {schema}.job j
                 WHERE j.id = ANY (ARRAY(SELECT r.job FROM {schema}.run r
                                          WHERE r.application = app AND r.state = 'running' AND r.node = ANY (gone)))
                   FOR KEY SHARE SKIP LOCKED) l;
        WITH taken AS MATERIALIZED (
            SELECT r.id, r.job, r.asked_to_end, r.stopping, r.losses FROM {schema}.run r   -- as they are once they are locked
             WHERE r.application = app AND r.state = 'running' AND r.node = ANY (gone) AND r.job = ANY (jobs)
               FOR NO KEY UPDATE SKIP LOCKED
        ), ended AS (
            UPDATE {schema}.run r
               SET state = x.becomes, token = NULL, asked_to_end = '', stopping = false, lane = x.lane, entered = pg_current_xact_id(),
                   losses = least(r.losses, 2147483646) + CASE WHEN r.stopping THEN 0 ELSE 1 END,
                   interruptions = least(r.interruptions, 2147483646) + CASE WHEN r.stopping THEN 1 ELSE 0 END,
                   reason = coalesce(nullif(r.asked_to_end, ''), CASE WHEN r.stopping THEN 'its node was stopped' ELSE 'its node died' END),
                   expires_at = CASE WHEN x.becomes = 'pending' THEN NULL ELSE r.expires_at END,
                   finished_at = CASE WHEN x.becomes > 'running' THEN now_ END
              FROM (SELECT t.id, j.lane,
                           CASE WHEN t.asked_to_end <> '' THEN 'cancelled'
                                WHEN j.state = 'removed' OR j.on_lost = 'fail' OR (NOT t.stopping AND t.losses >= j.max_lost - 1) THEN 'lost'
                                ELSE 'pending' END::{schema}.run_state AS becomes
                      FROM taken t JOIN {schema}.job j ON j.id = t.job) x
             WHERE r.id = x.id
            RETURNING r.id
        )
        SELECT array_agg(e.id) INTO lost_ids FROM ended e;
        IF lost_ids IS NOT NULL THEN
            PERFORM {schema}.wake(app);
        END IF;
    END IF;
    IF stops THEN
        UPDATE {schema}.run r SET stopping = true
         WHERE r.id IN (SELECT o.id FROM {schema}.run o
                         WHERE o.application = app AND o.state = 'running' AND o.node = caller AND NOT o.stopping
                           FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    SELECT array_agg(r.id), array_agg(r.token), array_agg(r.asked_to_end),
           array_agg(r.started_at IS NULL AND (SELECT j.state <> 'active' FROM {schema}.job j WHERE j.id = r.job))
      INTO held_ids, held_tokens, held_asked, held_must_answer
      FROM {schema}.run r WHERE r.application = app AND r.state = 'running' AND r.node = caller;
END $$;

-- What a node answers for runs of jobs that were paused or removed: their bodies have been called. One that is locked is about to end.
CREATE FUNCTION {schema}.note_begun(ids bigint[], tokens text[], started float8[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
BEGIN
    UPDATE {schema}.run r SET started_at = to_timestamp(x.started)
      FROM (SELECT l.id, b.started FROM unnest(ids, tokens, started) AS b (id, token, started)
              JOIN LATERAL (SELECT o.id FROM {schema}.run o WHERE o.id = b.id AND o.token = b.token FOR NO KEY UPDATE SKIP LOCKED) l ON true OFFSET 0) x
     WHERE r.id = x.id;
END $$;

-- The live nodes that may still begin runs of this job from before this generation. A claim stamps its runs with the job's generation,
-- under the job's lock: those of before were claimed before the change. Once the job is active again there is nothing to wait for.
CREATE FUNCTION {schema}.unbegun(of_job bigint, of_generation bigint) RETURNS TABLE (label text, ttl float8)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
BEGIN
    RETURN QUERY
    SELECT DISTINCT n.label, n.ttl::float8
      FROM {schema}.run r JOIN {schema}.node n ON n.id = r.node
     WHERE r.job = of_job AND r.attempt > 0 AND r.state <= 'running' AND r.token IS NOT NULL   -- is running; said so, `run_running` might be asked
       AND r.started_at IS NULL
       AND r.generation < of_generation AND n.state = 'alive'
       AND EXISTS (SELECT FROM {schema}.job j WHERE j.id = of_job AND j.state <> 'active')
     ORDER BY 1, 2;
END $$;

CREATE FUNCTION {schema}.prune_runs(of_application text, old float8, keep int, at_most int, beyond bigint, in_jobs int, keys_old float8,
    OUT removed bigint, OUT up_to bigint, OUT more boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
DECLARE
    before  timestamptz := to_timestamp(old);
    doomed  bigint[];
    jobs    bigint[];
    page    bigint[];
    keys    bigint;
BEGIN
    DELETE FROM {schema}.kept_key k
     USING (SELECT o.job, o.key FROM {schema}.application a
              JOIN {schema}.kept_key o ON o.application = a.id AND o.scheduled_for < to_timestamp(keys_old)
             WHERE a.name = of_application ORDER BY o.scheduled_for LIMIT at_most FOR UPDATE OF o SKIP LOCKED) d
     WHERE k.job = d.job AND k.key = d.key;
    GET DIAGNOSTICS keys = ROW_COUNT;
    removed := keys;
    SELECT array_agg(p.id ORDER BY p.id) INTO page
      FROM (SELECT j.id FROM {schema}.application a JOIN {schema}.job j ON j.application = a.id
             WHERE a.name = of_application AND j.id > beyond ORDER BY j.id LIMIT in_jobs) p;
    IF cardinality(page) = in_jobs THEN up_to := page[in_jobs]; END IF;
    SELECT array_agg(d.id), array_agg(DISTINCT d.job) INTO doomed, jobs
      FROM (SELECT r.id, r.job
              FROM unnest(page) AS p (id)
              JOIN LATERAL (SELECT x.id, (x.state = 'removed' OR (x.state = 'active' AND x.next_due IS NULL AND x.trigger IS NOT NULL))
                                         AND x.defined_at < before AND x.since < before AND (x.removed_at IS NULL OR x.removed_at < before) AS over
                              FROM {schema}.job x WHERE x.id = p.id) j ON true   -- of a job that is over nothing is kept: `forget_jobs` follows
              CROSS JOIN LATERAL (SELECT least(before, min(o.scheduled_for)) AS instant
                                    FROM {schema}.run o WHERE o.job = j.id AND o.state <= 'running') bound
              CROSS JOIN LATERAL (SELECT f.id, f.job FROM {schema}.run f
                                   WHERE f.job = j.id AND f.state > 'running'
                                     AND f.scheduled_for < bound.instant AND coalesce(f.until, f.scheduled_for) < bound.instant
                                     AND NOT (j.over AND coalesce(f.finished_at, f.scheduled_for) >= before)
                                     AND f.id <> ALL (ARRAY(SELECT k.id FROM {schema}.run k WHERE k.job = j.id AND k.state > 'running'
                                                             ORDER BY k.scheduled_for DESC, k.id DESC LIMIT CASE WHEN j.over THEN 0 ELSE keep END))
                                   ORDER BY f.scheduled_for LIMIT at_most) r
             LIMIT at_most) d;
    more := greatest(coalesce(cardinality(doomed), 0), keys) >= at_most;   -- of those that are removed below, others may have some locked
    SELECT array_agg(l.id) INTO jobs
      FROM (SELECT j.id FROM {schema}.job j WHERE j.id = ANY (jobs) FOR NO KEY UPDATE SKIP LOCKED) l;
    IF jobs IS NULL THEN RETURN; END IF;
    WITH taken AS MATERIALIZED (   -- a backfill may have opened one again
        SELECT r.id FROM unnest(doomed) AS d (id) JOIN {schema}.run r ON r.id = d.id
         WHERE r.job = ANY (jobs) AND r.state > 'running' FOR UPDATE OF r SKIP LOCKED
    ), gone AS (
        DELETE FROM {schema}.run r USING taken t WHERE r.id = t.id RETURNING r.*, coalesce(r.until, r.scheduled_for) AS last
    ), kept AS (   -- of what was asked for under a key of somebody's own
        INSERT INTO {schema}.kept_key (job, application, run, scheduled_for, started_at, finished_at, state, key, digest)
        SELECT g.job, g.application, g.id, g.scheduled_for, g.started_at, g.finished_at, g.state, g.key,
               CASE WHEN g.kwargs IS NULL THEN '' ELSE encode(sha256(convert_to(g.kwargs, 'UTF8')), 'hex') END
          FROM gone g
         WHERE g.kind = 'asked' AND g.key !~ '^asked-[0-9a-f]{16}$' AND g.scheduled_for >= to_timestamp(keys_old)
        ON CONFLICT (job, key) DO NOTHING
    ), lines AS (
        DELETE FROM {schema}.run_log l USING gone g WHERE l.run = g.id
    ), moved AS (
        UPDATE {schema}.job j SET kept_since = greatest(j.kept_since, g.last + interval '1 microsecond')
          FROM (SELECT x.job, max(x.last) AS last FROM gone x GROUP BY x.job) g WHERE j.id = g.job
    )
    SELECT keys + count(*) INTO removed FROM gone;
END $$;
