-- What is deleted when it is old enough.

-- Up to when runs of a job may be removed: not at or after one that is open or that a backfill has not settled, nor
-- after one of the parent, or of its parent, that owes a run or will. `kept_since` would say of what is still to follow
-- that it may have run.
CREATE OR REPLACE FUNCTION {schema}.past_of(app int, of_job bigint, before timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp {planner} AS $$
BEGIN
    RETURN (
        WITH RECURSIVE above AS (   -- the job, the one that it follows, and so on
            SELECT x.id, CASE WHEN x.state <> 'removed' THEN x.after END AS after
              FROM {schema}.job x WHERE x.id = of_job
            UNION
            SELECT p.id, CASE WHEN p.state <> 'removed' THEN p.after END
              FROM above a
             CROSS JOIN LATERAL (SELECT x.id, x.state, x.after FROM {schema}.job x
                                  WHERE x.application = app
                                    AND x.name = a.after COLLATE "default" OFFSET 0) p   -- as the index of names
        )
        SELECT least(before, min(o.scheduled_for), min(w.scheduled_for), min(d.scheduled_for))
          FROM above a
         CROSS JOIN LATERAL (SELECT min(x.scheduled_for) AS scheduled_for FROM {schema}.run x
                              WHERE x.job = a.id AND x.state <= 'running' AND (x.owes OR a.id = of_job)) o
         CROSS JOIN LATERAL (SELECT min(r.scheduled_for) AS scheduled_for   -- ORDER BY, so that `run_owed` serves
                               FROM (SELECT x.scheduled_for FROM {schema}.run x
                                      WHERE x.application = app AND x.job = a.id AND x.owes AND x.state > 'running'
                                        AND a.id <> of_job
                                      ORDER BY x.job, x.id OFFSET 0) r) w
         CROSS JOIN LATERAL (SELECT min(x.scheduled_for) AS scheduled_for FROM {schema}.backfill_due x
                              WHERE x.job = a.id AND x.outcome IS NULL) d);
END $$;

-- Deletes final runs, with their logs, and kept keys. Their figures stay: see `keep_figures`. `beyond` and `in_jobs`
-- select a page of jobs; `up_to` is where the next page begins, NULL after the last one.
CREATE OR REPLACE FUNCTION {schema}.prune_runs(
    of_application text, old float8, keep int, at_most int, beyond bigint, in_jobs int, keys_old float8,
    OUT removed bigint, OUT up_to bigint, OUT more boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    before  timestamptz := to_timestamp(old);
    doomed  bigint[];
    jobs    bigint[];
    bounds  timestamptz[];   -- of these jobs
    page    bigint[];
    keys    bigint;
    app     int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
    of_jobs bigint[];        -- hours from which something is removed
    hours   timestamptz[];
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
              -- Of a job that is over, no run is kept: `forget_jobs` follows.
              JOIN LATERAL (SELECT x.id, (x.state = 'removed'
                                          OR (x.state = 'active' AND x.next_due IS NULL AND x.trigger IS NOT NULL))
                                         AND x.defined_at < before AND x.since < before
                                         AND (x.removed_at IS NULL OR x.removed_at < before) AS over
                              FROM {schema}.job x WHERE x.id = p.id) j ON true
              CROSS JOIN LATERAL (SELECT {schema}.past_of(app, j.id, before) AS instant OFFSET 0) bound
              CROSS JOIN LATERAL (SELECT f.id, f.job FROM {schema}.run f
                                   WHERE f.job = j.id AND f.state > 'running'
                                     AND f.scheduled_for < bound.instant AND NOT f.owes
                                     AND coalesce(f.until, f.scheduled_for) < bound.instant
                                     AND NOT (j.over AND coalesce(f.finished_at, f.scheduled_for) >= before)
                                     AND f.id <> ALL (ARRAY(SELECT k.id FROM {schema}.run k
                                                             WHERE k.job = j.id AND k.state > 'running'
                                                             ORDER BY k.scheduled_for DESC, k.id DESC
                                                             LIMIT CASE WHEN j.over THEN 0 ELSE keep END))
                                   ORDER BY f.scheduled_for LIMIT at_most) r
             LIMIT at_most) d;
    more := greatest(coalesce(cardinality(doomed), 0), keys) >= at_most;   -- some of these may be locked, and stay
    SELECT array_agg(l.id) INTO jobs
      FROM (SELECT j.id FROM {schema}.job j WHERE j.id = ANY (jobs) FOR NO KEY UPDATE SKIP LOCKED) l;
    IF jobs IS NULL THEN RETURN; END IF;
    -- A retry may have reopened one, or a run that these follow; and a backfill may have been created.
    SELECT array_agg({schema}.past_of(app, j.id, before) ORDER BY j.place) INTO bounds
      FROM unnest(jobs) WITH ORDINALITY AS j (id, place);
    SELECT array_agg(t.id) INTO doomed
      FROM (SELECT r.id FROM unnest(doomed) AS d (id) JOIN {schema}.run r ON r.id = d.id
             WHERE r.job = ANY (jobs) AND r.state > 'running' AND NOT r.owes
               AND coalesce(r.until, r.scheduled_for) < bounds[array_position(jobs, r.job)]
               FOR UPDATE OF r SKIP LOCKED) t;
    IF doomed IS NULL THEN RETURN; END IF;
    -- Nothing is removed that is not in the figures when this transaction commits.
    PERFORM pg_advisory_xact_lock({schema}.key_of_figures(app));
    PERFORM {schema}.keep_figures(doomed);
    SELECT array_agg(h.job), array_agg(h.hour) INTO of_jobs, hours
      FROM (SELECT DISTINCT r.job, date_trunc('hour', r.scheduled_for, 'UTC') AS hour
              FROM unnest(doomed) AS d (id) JOIN {schema}.run r ON r.id = d.id) h;
    WITH gone AS (
        DELETE FROM {schema}.run r USING unnest(doomed) AS d (id) WHERE r.id = d.id
        RETURNING r.*, coalesce(r.until, r.scheduled_for) AS last
    ), kept AS (   -- keys that users chose
        INSERT INTO {schema}.kept_key (job, application, run, scheduled_for, started_at, finished_at, state, key,
                                       digest)
        SELECT g.job, g.application, g.id, g.scheduled_for, g.started_at, g.finished_at, g.state, g.key,
               CASE WHEN g.kwargs IS NULL THEN '' ELSE encode(sha256(convert_to(g.kwargs, 'UTF8')), 'hex') END
          FROM gone g
         WHERE g.kind = 'manual' AND g.key !~ '^manual-[0-9a-f]{16}$' AND g.scheduled_for >= to_timestamp(keys_old)
        ON CONFLICT (job, key) DO NOTHING
    ), lines AS (
        DELETE FROM {schema}.run_log l USING gone g WHERE l.run = g.id
    ), progress AS (
        DELETE FROM {schema}.run_progress p USING gone g WHERE p.run = g.id
    ), attempts AS (
        DELETE FROM {schema}.attempt a USING gone g WHERE a.run = g.id
    ), moved AS (
        UPDATE {schema}.job j SET kept_since = greatest(j.kept_since, g.last + interval '1 microsecond')
          FROM (SELECT x.job, max(x.last) AS last FROM gone x GROUP BY x.job) g WHERE j.id = g.job
    )
    SELECT keys + count(*) INTO removed FROM gone;
    PERFORM {schema}.count_hours(of_jobs, hours, ARRAY(SELECT h.hour + interval '1 hour' FROM unnest(hours)
                                                         WITH ORDINALITY AS h (hour, place) ORDER BY h.place));
END $$;

-- Deletes jobs that are removed or done, that no code has defined since an instant, and of which `prune_runs` has
-- left neither a run nor a key. Their changes and figures go first, at most ten times as many as jobs of each, to keep
-- the statement short; a job goes with the last of them. SECURITY DEFINER: only the owner may delete a job, and
-- callers may delete no others than these.
CREATE OR REPLACE FUNCTION {schema}.forget_jobs(
    of_application text, old float8, defined text[], at_most int, OUT forgotten bigint, OUT more boolean
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    now_   timestamptz := clock_timestamp();
    before timestamptz := least(to_timestamp(old), now_);
    app    int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
    found_ bigint[];
    gone   bigint[];
BEGIN
    forgotten := 0;
    more := false;
    UPDATE {schema}.job j SET defined_at = now_   -- live nodes have code for these; writing it now and then is enough
     WHERE j.id IN (SELECT o.id FROM {schema}.job o
                     WHERE o.application = app
                       AND (o.state = 'removed'
                            OR (o.state = 'active' AND o.next_due IS NULL AND o.trigger IS NOT NULL))
                       AND o.defined_at < now_ - (now_ - before) / 10 AND (o.in_code OR o.override IS NOT NULL)
                       AND coalesce(o.override #>> '{code,function}', o.function) = ANY (defined)
                     ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED);
    SELECT array_agg(l.id) INTO found_
      FROM (SELECT j.id FROM {schema}.job j
             WHERE j.application = app
               AND (j.state = 'removed' OR (j.state = 'active' AND j.next_due IS NULL AND j.trigger IS NOT NULL))
               -- Tested here too, because the update above may have skipped it.
               AND NOT ((j.in_code OR j.override IS NOT NULL)
                        AND coalesce(j.override #>> '{code,function}', j.function) = ANY (defined))
               AND j.defined_at < before AND j.since < before AND (j.removed_at IS NULL OR j.removed_at < before)
               AND NOT EXISTS (SELECT FROM {schema}.run r WHERE r.job = j.id)
               AND NOT EXISTS (SELECT FROM {schema}.kept_key k WHERE k.job = j.id)
               AND NOT EXISTS (SELECT FROM {schema}.backfill_due d WHERE d.job = j.id AND d.outcome IS NULL)
             ORDER BY j.defined_at LIMIT at_most FOR UPDATE SKIP LOCKED) l;
    -- Once more, under the locks: from here on no session can request a run of these jobs.
    SELECT array_agg(g.id) INTO found_ FROM unnest(found_) AS g (id)
     WHERE NOT EXISTS (SELECT FROM {schema}.run r WHERE r.job = g.id)
       AND NOT EXISTS (SELECT FROM {schema}.backfill_due d WHERE d.job = g.id AND d.outcome IS NULL);
    IF found_ IS NULL THEN RETURN; END IF;
    DELETE FROM {schema}.job_change c
     USING (SELECT o.id FROM {schema}.job_change o WHERE o.job = ANY (found_) LIMIT at_most * 10) d WHERE c.id = d.id;
    DELETE FROM {schema}.job_hour h
     USING (SELECT o.job, o.hour, o.removed FROM {schema}.job_hour o WHERE o.job = ANY (found_) LIMIT at_most * 10) d
     WHERE h.job = d.job AND h.hour = d.hour AND h.removed = d.removed;
    DELETE FROM {schema}.job_day y
     USING (SELECT o.job, o.day FROM {schema}.job_day o WHERE o.job = ANY (found_) LIMIT at_most * 10) d
     WHERE y.job = d.job AND y.day = d.day;
    SELECT array_agg(g.id) INTO gone FROM unnest(found_) AS g (id)
     WHERE NOT EXISTS (SELECT FROM {schema}.job_change c WHERE c.job = g.id)
       AND NOT EXISTS (SELECT FROM {schema}.job_hour h WHERE h.job = g.id)
       AND NOT EXISTS (SELECT FROM {schema}.job_day y WHERE y.job = g.id);
    forgotten := coalesce(cardinality(gone), 0);
    more := cardinality(found_) = at_most OR forgotten < cardinality(found_);
    IF forgotten = 0 THEN RETURN; END IF;
    UPDATE {schema}.application a
       SET kept_since = greatest(a.kept_since, before),
           generation = greatest(a.generation, (SELECT max(j.generation) FROM {schema}.job j WHERE j.id = ANY (gone)))
     WHERE a.id = app;
    DELETE FROM {schema}.job j WHERE j.id = ANY (gone);
END $$;

-- Deletes sets of functions that no node refers to.
CREATE OR REPLACE FUNCTION {schema}.sweep_functions() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unused text[];
BEGIN
    -- A node that is writing its facts has locked the set that it is about to reference.
    SELECT array_agg(o.hash) INTO unused
      FROM (SELECT s.hash FROM {schema}.function_set s
             WHERE NOT EXISTS (SELECT FROM {schema}.node_facts f WHERE f.functions = s.hash)
               FOR UPDATE SKIP LOCKED) o;
    -- Once more, under the locks: a node may have referenced it after the statement above began.
    DELETE FROM {schema}.function_set s
     WHERE s.hash = ANY (unused) AND NOT EXISTS (SELECT FROM {schema}.node_facts f WHERE f.functions = s.hash);
END $$;
