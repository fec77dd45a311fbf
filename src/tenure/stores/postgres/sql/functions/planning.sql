-- What nodes can run, due times on their way into the ledger, and due times that were missed.

-- Writes what a node can run for an application, if the node is alive.
CREATE OR REPLACE FUNCTION {schema}.write_facts(
    of_node uuid, of_application text, set_hash text, set_names text[], of_queues text[], of_capacity int,
    of_release bigint, of_library text, of_tzdata text, of_host text, of_signatures text, of_offset float8,
    of_unfit text DEFAULT ''
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM 1 FROM {schema}.node n WHERE n.id = of_node AND n.state = 'alive' FOR KEY SHARE;
    IF NOT FOUND THEN RETURN; END IF;
    INSERT INTO {schema}.function_set (hash, names) VALUES (set_hash, set_names)
    ON CONFLICT (hash) DO UPDATE SET hash = excluded.hash;   -- locks it, so no sweep deletes it before it is referenced
    INSERT INTO {schema}.node_facts AS f (node, application, functions, queues, capacity, release, library, tzdata,
                                          host, signatures, clock_offset, unfit)
    VALUES (of_node, of_application, set_hash, of_queues, of_capacity, of_release, of_library, of_tzdata,
            of_host, of_signatures, of_offset, of_unfit)
    ON CONFLICT (node, application) DO UPDATE
       SET (functions, queues, capacity, release, library, tzdata, host, signatures, clock_offset, unfit)
         = (excluded.functions, excluded.queues, excluded.capacity, excluded.release, excluded.library,
            excluded.tzdata, excluded.host, excluded.signatures, excluded.clock_offset, excluded.unfit);
    PERFORM pg_notify('{channel}', '!' || of_application);
END $$;

-- Jobs that are due before an instant and not yet planned, and paused jobs whose pause is over. `strangers` are
-- functions that no live node has. Where `zones` is given, jobs written with newer zone rules are left to other nodes
-- until `overdue`.
CREATE OR REPLACE FUNCTION {schema}.unplanned_jobs(
    of_application text, before float8, at_most int, strangers text[], zones text, overdue float8
) RETURNS TABLE (
    id bigint, name text, generation bigint, next_due float8, trigger text, rules text, resumes boolean,
    next_reading text
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app  int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
    now_ timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT u.id, u.name, u.generation, date_part('epoch', u.next_due), u.trigger, u.rules::text, u.state = 'paused',
           u.next_reading
      FROM ((SELECT j.* FROM {schema}.job j   -- two searches, each along its own index
              WHERE j.application = app AND j.state = 'active' AND j.next_due < to_timestamp(before)
                AND j.function <> ALL (strangers)
                AND (zones = '' OR j.tzdata <= zones OR j.next_due < to_timestamp(overdue))
              ORDER BY j.next_due LIMIT at_most)
            UNION ALL
            (SELECT j.* FROM {schema}.job j
              WHERE j.application = app AND j.state = 'paused' AND j.paused_until <= now_
                AND j.function <> ALL (strangers)
                AND (zones = '' OR j.tzdata <= zones OR j.paused_until < to_timestamp(overdue))
              ORDER BY j.paused_until LIMIT at_most)) u
     ORDER BY coalesce(u.next_due, now_), u.id LIMIT at_most;
END $$;

-- Inserts the runs of planned jobs, and moves each job to its next due time. Skips jobs that are locked or have
-- changed. Returns the number of runs inserted.
CREATE OR REPLACE FUNCTION {schema}.plan_runs(
    jobs bigint[], generations bigint[], dues float8[], thens float8[], readings text[],
    -- The runs: the place of their job in `jobs`, from 1 on, and the columns. The last four may be NULL: all runs are
    -- PENDING and stand for one due time each.
    places bigint[], keys text[], scheduled float8[], ready float8[], expire float8[],
    states text[], reasons text[], counts bigint[], untils float8[]
) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    apps     int[] := array_fill(NULL::int, ARRAY[cardinality(jobs)]);   -- of the jobs that this call plans
    lanes    int[] := apps;
    owe      boolean[] := array_fill(false, ARRAY[cardinality(jobs)]);
    place_   bigint;
    app      int;
    lane_    int;
    follows_ boolean;
    inserted bigint;
BEGIN
    FOR place_, app, lane_, follows_ IN
        WITH free AS MATERIALIZED (   -- the comparison is repeated on the locked row
            SELECT j.id, j.application, p.place, p.next, p.reading
              FROM unnest(jobs, generations, dues, thens, readings)
                   WITH ORDINALITY AS p (id, generation, due, next, reading, place)
             CROSS JOIN LATERAL (SELECT x.id, x.application FROM {schema}.job x
                                  WHERE x.id = p.id   -- CASE, so that only the index on id can serve
                                    AND CASE WHEN x.generation = p.generation
                                             THEN x.state = 'active' AND x.next_due = to_timestamp(p.due) END
                                    FOR NO KEY UPDATE SKIP LOCKED) j
        )
        UPDATE {schema}.job j SET next_due = to_timestamp(f.next), next_reading = f.reading
          FROM free f WHERE j.id = f.id
        RETURNING f.place, j.application, j.lane, j.followed
    LOOP
        apps[place_] := app;
        lanes[place_] := lane_;
        IF follows_ THEN owe[place_] := true; END IF;
    END LOOP;
    INSERT INTO {schema}.run (job, application, lane, generation, kind, key, scheduled_for, due_at, expires_at, state,
                              reason, count, until, owes)
    SELECT jobs[n.place], apps[n.place], lanes[n.place], generations[n.place], 'due', n.key,
           to_timestamp(n.scheduled), to_timestamp(n.ready), to_timestamp(n.expire),
           coalesce(n.state, 'pending')::{schema}.run_state, coalesce(n.reason, ''), coalesce(n.count, 1),
           to_timestamp(n.until), owe[n.place]
      FROM unnest(places, keys, scheduled, ready, expire, states, reasons, counts, untils)
           AS n (place, key, scheduled, ready, expire, state, reason, count, until)
     WHERE apps[n.place] IS NOT NULL
     ORDER BY n.ready   -- runs that are claimed together lie together
    ON CONFLICT (job, key) DO NOTHING;
    GET DIAGNOSTICS inserted = ROW_COUNT;
    INSERT INTO {schema}.hour_touched (job, at)   -- of runs that should have been planned long ago
    SELECT DISTINCT jobs[n.place], date_trunc('hour', to_timestamp(n.scheduled), 'UTC')
      FROM unnest(places, scheduled) AS n (place, scheduled)
     WHERE n.scheduled < date_part('epoch', now()) - 600 AND apps[n.place] IS NOT NULL;
    RETURN inserted;
END $$;

-- Jobs with runs that expired before a node claimed them, and whether a later due time of the job was in time.
CREATE OR REPLACE FUNCTION {schema}.missed_jobs(of_application text, at_most int, functions text[])
RETURNS TABLE (
    id bigint, name text, generation bigint, rules text, runs bigint[], scheduled float8[], in_time boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app   int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
    now_  timestamptz := clock_timestamp();
    found bigint[];
BEGIN
    SELECT array_agg(DISTINCT o.job) INTO found   -- ORDER BY, so that the index `run_expires` serves
      FROM {schema}.lanes_of(app, functions) l
     CROSS JOIN LATERAL (SELECT r.job FROM {schema}.run r
                          WHERE r.lane = l.id AND r.state = 'pending' AND r.expires_at <= now_
                          ORDER BY r.expires_at LIMIT 10000) o;
    RETURN QUERY
    SELECT j.id, j.name, j.generation, j.rules::text, m.ids, m.instants,
           -- A later due time was in time if it is open and not expired, or has ended after it began.
           EXISTS (SELECT FROM {schema}.run l
                    WHERE l.job = j.id AND l.state <= 'running' AND l.kind = 'due' AND l.scheduled_for > m.last
                      AND l.due_at <= now_
                      AND (l.state <> 'pending' OR l.expires_at IS NULL OR l.expires_at > now_))
           OR EXISTS (SELECT FROM {schema}.run l
                       WHERE l.job = j.id AND l.state > 'running' AND l.kind = 'due' AND l.scheduled_for > m.last
                         AND l.due_at <= now_
                         AND l.state NOT IN ('skipped', 'cancelled'))
      FROM (SELECT * FROM {schema}.job x WHERE x.id = ANY (found) AND x.state = 'active'
             ORDER BY x.name COLLATE "C" LIMIT at_most) j
     CROSS JOIN LATERAL (SELECT array_agg(o.id) AS ids, array_agg(date_part('epoch', o.scheduled_for)) AS instants,
                                max(o.scheduled_for) AS last
                           FROM (SELECT r.id, r.scheduled_for FROM {schema}.run r
                                  WHERE r.job = j.id AND r.attempt - r.reopened = 0 AND r.state = 'pending'
                                    AND r.expires_at <= now_
                                  ORDER BY r.scheduled_for LIMIT 1000) o) m
     WHERE m.ids IS NOT NULL
     ORDER BY j.name COLLATE "C";
END $$;

-- Decides missed runs of one job: those to make up become backfills, the others are skipped. False, and nothing is
-- done, if the job is locked or has changed, or if one of the runs is no longer missed.
CREATE OR REPLACE FUNCTION {schema}.settle_runs(
    of_job bigint, of_generation bigint, make_up bigint[], skip bigint[], why text
) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    now_ timestamptz;
BEGIN
    PERFORM 1 FROM {schema}.job j WHERE j.id = of_job AND j.generation = of_generation FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN false; END IF;
    now_ := clock_timestamp();
    IF (SELECT count(*) FROM unnest(make_up || skip) AS c (id) JOIN {schema}.run r ON r.id = c.id
         WHERE r.job = of_job AND r.state = 'pending' AND r.expires_at <= now_) < cardinality(make_up || skip) THEN
        RETURN false;
    END IF;
    UPDATE {schema}.run r SET kind = 'backfill', due_at = now_, expires_at = NULL, entered = pg_current_xact_id()
      FROM unnest(make_up) AS c (id) WHERE r.id = c.id;
    UPDATE {schema}.run r SET state = 'skipped', reason = why, finished_at = now_
      FROM unnest(skip) AS c (id) WHERE r.id = c.id;
    RETURN true;
END $$;

-- How many runs each node has.
CREATE OR REPLACE FUNCTION {schema}.running_by_node(of_application text) RETURNS TABLE (node uuid, runs bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
BEGIN
    RETURN QUERY
    SELECT r.node, count(*) FROM {schema}.run r
     WHERE r.application = (SELECT a.id FROM {schema}.application a WHERE a.name = of_application)
       AND r.state = 'running' AND r.node IS NOT NULL
     GROUP BY r.node;
END $$;

-- Active jobs in lanes that no live node serves. A served function without a queue is served in all queues. Lanes are
-- never removed, so each is looked up among the jobs of its function.
CREATE OR REPLACE FUNCTION {schema}.unserved_jobs(
    of_application text, functions text[], queues text[], at_most int
) RETURNS TABLE (id bigint, name text, function text, queue text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
BEGIN
    RETURN QUERY
    SELECT u.id, u.name, u.function, u.queue
      FROM {schema}.lane l
     CROSS JOIN LATERAL (SELECT j.id, j.name, j.function, j.queue FROM {schema}.job j
                          WHERE j.application = app AND j.function = l.function AND j.state <> 'removed'
                            AND j.state = 'active' AND j.queue = l.queue
                            AND (j.next_due IS NOT NULL OR j.trigger IS NULL   -- else it is done, unless a run is open
                                 OR {schema}.state_of_planned(j.id) = 'active')
                          LIMIT at_most) u
     WHERE l.application = app
       AND NOT EXISTS (SELECT FROM unnest(functions, queues) AS s (function, queue)
                        WHERE s.function = l.function AND (s.queue IS NULL OR s.queue = l.queue))
     LIMIT at_most;
END $$;

-- Runs past their grace that no node has begun. What explains a late run is left out: it waits (overlap), has no lane
-- (its job is paused), has been attempted, or was requested. `core/overdue.py` has the list. For the few without
-- `expires_at` the grace comes on top; they are looked for among the oldest, not in a whole backlog.
CREATE OR REPLACE FUNCTION {schema}.overdue_runs(of_application text, before float8, at_most int)
RETURNS TABLE (job bigint, name text, function text, queue text, due float8, late_since float8, id bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
BEGIN
    RETURN QUERY
    SELECT o.* FROM {schema}.lane l
     CROSS JOIN LATERAL (SELECT r.job, j.name, j.function, j.queue, date_part('epoch', r.scheduled_for), g.over, r.id
                           FROM ((SELECT e.id, e.job, e.scheduled_for, e.due_at, e.expires_at FROM {schema}.run e
                                   WHERE e.lane = l.id AND e.state = 'pending' AND e.expires_at < to_timestamp(before)
                                     AND e.attempt = 0 AND e.kind <> 'manual' AND e.by = ''
                                   ORDER BY e.expires_at LIMIT at_most)
                                 UNION ALL
                                 SELECT d.id, d.job, d.scheduled_for, d.due_at, d.expires_at
                                   FROM (SELECT x.* FROM {schema}.run x
                                          WHERE x.lane = l.id AND x.state = 'pending'
                                            AND x.due_at < to_timestamp(before)
                                          ORDER BY x.due_at, x.id LIMIT at_most) d
                                  WHERE d.expires_at IS NULL AND d.attempt = 0 AND d.kind <> 'manual' AND d.by = '') r
                           JOIN {schema}.job j ON j.id = r.job
                          CROSS JOIN LATERAL (SELECT coalesce(date_part('epoch', r.expires_at),
                                                              date_part('epoch', r.due_at) + j.on_time) AS over) g
                          WHERE g.over < before) o
     WHERE l.application = app
     ORDER BY o.over LIMIT at_most;
END $$;

-- The arguments of jobs by name, page by page.
CREATE OR REPLACE FUNCTION {schema}.stored_arguments(of_application text, after text, at_most int)
RETURNS TABLE (name text, function text, kwargs text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
BEGIN
    RETURN QUERY
    SELECT j.name, j.function, j.kwargs FROM {schema}.job j
     WHERE j.application = app AND j.name > stored_arguments.after AND j.state <> 'removed'
       AND (j.trigger IS NOT NULL OR j.after IS NOT NULL OR j.kwargs <> '{}')
     ORDER BY j.name LIMIT at_most;
END $$;

-- The arguments of runs that were requested with their own and have not begun, by number, after this one.
CREATE OR REPLACE FUNCTION {schema}.requested_arguments(of_application text, after bigint, at_most int)
RETURNS TABLE (id bigint, name text, function text, kwargs text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
BEGIN
    RETURN QUERY
    SELECT r.id, j.name, j.function, r.kwargs
      FROM (SELECT x.id, x.job, x.kwargs FROM {schema}.run x
             WHERE x.application = app AND x.kwargs IS NOT NULL AND x.state <= 'waiting'
               AND x.id > requested_arguments.after
             ORDER BY x.id LIMIT at_most) r
      JOIN {schema}.job j ON j.id = r.job
     ORDER BY r.id;
END $$;
