-- Runs of jobs that follow other jobs.
--
-- A run of a job that is followed `owes`. Once it is final it is in the index `run_owed`, however it ended. So no
-- ending has to write or lock anything for its followers.

-- What a run of a follower is, after a run of its parent has ended: PENDING, or SKIPPED with the reason. `run_rules`
-- has the same in Python.
CREATE OR REPLACE FUNCTION {schema}.followed(
    parent text, state {schema}.run_state, reason text, kind {schema}.run_kind, attempt int,
    wanted text, state_of_follower text, OUT becomes {schema}.run_state, OUT why text
)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN o.ended_so AND NOT (state_of_follower = 'paused' AND kind = 'due') THEN 'pending'
                ELSE 'skipped' END::{schema}.run_state,
           CASE WHEN o.ended_so THEN CASE WHEN state_of_follower = 'paused' AND kind = 'due' THEN 'paused' ELSE '' END
                WHEN state <> 'skipped'
                THEN 'after: ' || parent || CASE WHEN state IN ('lost', 'cancelled') THEN ' was ' ELSE ' ' END || state
                WHEN starts_with(reason, 'after: ') THEN reason
                ELSE 'after: ' || parent || ' was skipped (' || reason || ')' END
      FROM (SELECT CASE wanted WHEN 'success' THEN state = 'succeeded'
                               WHEN 'failure' THEN state IN ('failed', 'lost')
                               ELSE attempt > 0 END AS ended_so) o
$$;

-- What these final runs of parents owe these followers, in their order. `again` is the follower's run, if that was
-- skipped, never began, and becomes this. LATERAL and OFFSET keep each look to its own index, whatever the planner
-- takes the tables for.
CREATE OR REPLACE FUNCTION {schema}.owed_to(app int, ended bigint[], followers bigint[]) RETURNS TABLE (
    parent bigint, key text, kind {schema}.run_kind, scheduled_for timestamptz, count int, until timestamptz, by text,
    job bigint, lane int, generation bigint, owes boolean, on_time float8, kept_since timestamptz,
    becomes {schema}.run_state, why text, again bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
BEGIN
    RETURN QUERY
    SELECT r.id, r.key, r.kind, r.scheduled_for, r.count, r.until, r.by, f.id, f.lane, f.generation, f.followed,
           f.on_time, f.kept_since, d.becomes, d.why, b.id
      FROM unnest(ended) AS e (id)
     CROSS JOIN LATERAL (SELECT x.* FROM {schema}.run x WHERE x.id = e.id OFFSET 0) r
     CROSS JOIN LATERAL (SELECT x.name FROM {schema}.job x WHERE x.id = r.job OFFSET 0) p
     CROSS JOIN LATERAL (SELECT x.* FROM {schema}.job x
                          WHERE x.application = app AND x.after = p.name   -- CASE, so that only `job_after` can serve
                            AND CASE WHEN x.after IS NOT NULL THEN x.state <> 'removed' END OFFSET 0) f
     CROSS JOIN LATERAL {schema}.followed(p.name, r.state, r.reason, r.kind, r.attempt, f.after_on, f.state) d
      LEFT JOIN LATERAL (SELECT x.id FROM {schema}.run x
                          WHERE x.job = f.id AND x.key = r.key   -- CASE, so that only the index on both can serve
                            AND CASE WHEN x.attempt = 0 AND x.count = 1 AND x.state = 'skipped'
                                     THEN (starts_with(x.reason, 'after: ') OR x.finished_at < r.finished_at)
                                          AND (d.becomes <> 'skipped' OR x.reason <> d.why) END
                         OFFSET 0) b ON true
     WHERE f.id = ANY (followers);
END $$;

-- Writes what these final runs, which the caller has locked, owe these followers, which it has locked as well. Fails
-- rather than wait: a user's open transaction may have requested a run of the same key.
--
-- `due`: when these runs are due; `when_` is now, and what expires does so that much later.
CREATE OR REPLACE FUNCTION {schema}.pay_followers(
    app int, ended bigint[], followers bigint[], due timestamptz, when_ timestamptz, OUT begins boolean,
    OUT owing boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '2ms' {planner} AS $$
BEGIN
    WITH owed AS MATERIALIZED (
        SELECT o.*, CASE WHEN o.kind = 'due' AND o.becomes = 'pending'
                         THEN when_ + make_interval(secs => o.on_time) END AS expires_at,
               CASE o.becomes WHEN 'skipped' THEN when_ END AS finished_at
          FROM {schema}.owed_to(app, ended, followers) o
    ), reopened AS (
        UPDATE {schema}.run b
           SET state = o.becomes, reason = o.why, kind = o.kind, lane = o.lane, generation = o.generation,
               entered = pg_current_xact_id(), by = o.by, owes = o.owes, due_at = due, expires_at = o.expires_at,
               finished_at = o.finished_at
          FROM owed o WHERE b.id = o.again
        RETURNING b.state, b.owes, b.job, b.scheduled_for
    ), new AS (
        INSERT INTO {schema}.run (job, application, lane, generation, kind, key, scheduled_for, due_at, expires_at,
                                  finished_at, state, reason, count, until, by, owes)
        SELECT o.job, app, o.lane, o.generation, o.kind, o.key, o.scheduled_for, due, o.expires_at, o.finished_at,
               o.becomes, o.why, o.count, o.until, o.by, o.owes
          FROM owed o
         -- None of these may have run and been forgotten. Keys that callers chose are kept.
         WHERE (coalesce(o.until, o.scheduled_for) >= o.kept_since
                OR (o.kind = 'manual' AND o.key !~ '^manual-[0-9a-f]{16}$'))
           AND NOT EXISTS (SELECT FROM {schema}.kept_key k WHERE k.job = o.job AND k.key = o.key)
           AND NOT EXISTS (SELECT FROM {schema}.run b WHERE b.job = o.job AND b.key = o.key)
        ON CONFLICT (job, key) DO NOTHING
        RETURNING state, owes, job, scheduled_for
    ), written AS (
        SELECT * FROM reopened UNION ALL SELECT * FROM new
    ), counted AS (   -- in hours that may have been counted already
        INSERT INTO {schema}.hour_touched (job, at)
        SELECT DISTINCT w.job, date_trunc('hour', w.scheduled_for, 'UTC') FROM written w
         WHERE w.scheduled_for < when_ - interval '10 minutes'
    )
    SELECT coalesce(bool_or(w.state = 'pending'), false), coalesce(bool_or(w.owes AND w.state = 'skipped'), false)
      INTO begins, owing
      FROM written w;
END $$;

-- Gives followers the runs that they are owed: a page of at most `at_most`, by parent. Waits for nothing: what another
-- transaction has locked or is about to write stays owed. `up_to` is where the next page begins, NULL after the last
-- one; so what stays owed holds up no other parent.
--
-- Followers are locked KEY SHARE, like the job of a requested run: a change of the job excludes this, a claim does not.
CREATE OR REPLACE FUNCTION {schema}.follow_up(
    of_application text, at_most int, beyond bigint, as_of float8,
    OUT paid bigint, OUT begins boolean, OUT more boolean, OUT up_to bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app     int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
    when_   timestamptz;
    due     timestamptz;
    page    bigint[];
    parents bigint[];
    last_   bigint;
    cut     boolean := false;   -- the last parent owes more than this page has
    free    bigint[];   -- followers that are locked
    unpaid  bigint[];   -- parents with a follower that is not
    ended   bigint[];   -- runs of parents that are locked
    busy    bigint[];   -- those whose follower's run another transaction has locked or is about to write
    place   int := 1;
    size    int;
    done    record;
BEGIN
    paid := 0;
    begins := false;
    more := false;
    SELECT array_agg(o.id), array_agg(DISTINCT o.job), max(o.job) INTO page, parents, last_
      FROM (SELECT r.id, r.job FROM {schema}.run r
             WHERE r.application = app AND r.owes AND r.state > 'running' AND r.job > beyond
             ORDER BY r.job, r.id LIMIT at_most) o;
    IF page IS NULL THEN RETURN; END IF;
    IF cardinality(page) = at_most THEN   -- ORDER BY, so that the index `run_owed` serves
        cut := (SELECT r.id FROM {schema}.run r
                 WHERE r.application = app AND r.owes AND r.state > 'running' AND r.job = last_
                   AND r.id > page[at_most] ORDER BY r.id LIMIT 1) IS NOT NULL;
        IF (SELECT r.job FROM {schema}.run r
             WHERE r.application = app AND r.owes AND r.state > 'running' AND r.job > last_
             ORDER BY r.job LIMIT 1) IS NOT NULL THEN
            up_to := last_;
        END IF;
    END IF;
    SELECT array_agg(f.id) INTO free
      FROM unnest(parents) AS o (id)
     CROSS JOIN LATERAL (SELECT x.name FROM {schema}.job x WHERE x.id = o.id OFFSET 0) p
     CROSS JOIN LATERAL (SELECT x.id FROM {schema}.job x
                          WHERE x.application = app AND x.after = p.name   -- CASE, so that only `job_after` can serve
                            AND CASE WHEN x.after IS NOT NULL THEN x.state <> 'removed' END
                            FOR KEY SHARE SKIP LOCKED) f;
    free := coalesce(free, '{}');
    SELECT array_agg(DISTINCT o.id) INTO unpaid   -- in a later statement: what was added meanwhile is owed, too
      FROM unnest(parents) AS o (id)
     CROSS JOIN LATERAL (SELECT x.name FROM {schema}.job x WHERE x.id = o.id OFFSET 0) p
     CROSS JOIN LATERAL (SELECT x.id FROM {schema}.job x
                          WHERE x.application = app AND x.after = p.name
                            AND CASE WHEN x.after IS NOT NULL THEN x.state <> 'removed' END OFFSET 0) f
     WHERE f.id <> ALL (free);
    SELECT array_agg(r.id ORDER BY o.place) INTO ended
      FROM unnest(page) WITH ORDINALITY AS o (id, place)
     CROSS JOIN LATERAL (SELECT x.id FROM {schema}.run x
                          WHERE x.id = o.id   -- CASE, so that only the index on id can serve
                            AND CASE WHEN x.owes THEN x.state > 'running' END
                            FOR NO KEY UPDATE SKIP LOCKED) r;
    SELECT array_agg(o.parent) INTO busy
      FROM {schema}.owed_to(app, ended, free) o
      LEFT JOIN LATERAL (SELECT x.id FROM {schema}.run x WHERE x.id = o.again FOR NO KEY UPDATE SKIP LOCKED) b ON true
     WHERE o.again IS NOT NULL AND b.id IS NULL;
    busy := coalesce(busy, '{}');
    ended := ARRAY(SELECT e.id FROM unnest(ended) AS e (id) WHERE e.id <> ALL (busy));
    -- The node keeps to the old time while the clock has jumped: what is due a year ahead would not begin.
    when_ := coalesce(to_timestamp(as_of), clock_timestamp());
    due := least(when_, clock_timestamp());
    size := cardinality(ended);
    WHILE place <= cardinality(ended) LOOP   -- half as many after each failure, twice as many after each success
        BEGIN
            SELECT p.* INTO done FROM {schema}.pay_followers(app, ended[place:place + size - 1], free, due, when_) p;
            begins := begins OR done.begins;
            more := more OR done.owing;
            place := place + size;
            size := size * 2;
        EXCEPTION WHEN lock_not_available THEN
            IF size <= 1 THEN
                busy := busy || ended[place];
                place := place + 1;
            END IF;
            size := greatest(size / 2, 1);
        END;
    END LOOP;
    UPDATE {schema}.run r SET owes = false
     WHERE r.id = ANY (ended) AND r.id <> ALL (busy) AND r.job <> ALL (coalesce(unpaid, '{}'));
    GET DIAGNOSTICS paid = ROW_COUNT;
    more := more OR (cut AND paid > 0);
    IF begins THEN PERFORM {schema}.notify_nodes(app); END IF;
END $$;

-- A change of a job has withdrawn runs that were skipped while the clock was ahead, and has shortened others. Does the
-- same to what followed them: else the followers would not run when these due times are planned anew.
CREATE OR REPLACE FUNCTION {schema}.withdraw_behind(
    parent {schema}.job, withdrawn text[], shortened text[], now_ timestamptz
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    behind bigint[];   -- its followers, and theirs
BEGIN
    WITH RECURSIVE follows AS (
        SELECT f.id, f.name FROM {schema}.job f WHERE f.application = parent.application AND f.after = parent.name
        UNION
        SELECT f.id, f.name
          FROM follows p JOIN {schema}.job f ON f.application = parent.application AND f.after = p.name
    )
    SELECT array_agg(f.id) INTO behind FROM follows f;
    DELETE FROM {schema}.run r
     WHERE r.job = ANY (behind) AND r.key = ANY (withdrawn) AND r.state = 'skipped' AND r.attempt = 0
       AND starts_with(r.reason, 'after: ');
    UPDATE {schema}.run r SET until = now_
     WHERE r.job = ANY (behind) AND r.key = ANY (shortened) AND r.state = 'skipped' AND r.until > now_;
END $$;
