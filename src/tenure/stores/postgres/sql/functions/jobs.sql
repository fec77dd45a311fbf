-- What users do to jobs and runs. The arguments are plain values, so any driver can call these functions inside the
-- user's own transaction.

-- Notifies the nodes of an application.
CREATE OR REPLACE FUNCTION {schema}.notify_nodes(app int) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_notify('{channel}', '!' || a.name) FROM {schema}.application a WHERE a.id = app
$$;

-- The lanes of an application: those of these functions, or all of them if `functions` is NULL.
CREATE OR REPLACE FUNCTION {schema}.lanes_of(app int, functions text[]) RETURNS SETOF {schema}.lane
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    IF functions IS NULL THEN
        RETURN QUERY SELECT l.* FROM {schema}.lane l WHERE l.application = app;
    ELSE
        RETURN QUERY SELECT l.* FROM unnest(functions) AS f (name)
                       JOIN {schema}.lane l ON l.application = app AND l.function = f.name;
    END IF;
END $$;

-- The lane of a function and a queue, created if there is none.
CREATE OR REPLACE FUNCTION {schema}.lane_of(app int, of_function text, of_queue text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found int := (SELECT min(l.id) FROM {schema}.lane l
                   WHERE l.application = app AND l.function = of_function AND l.queue = of_queue);
BEGIN
    IF found IS NULL THEN
        INSERT INTO {schema}.lane (application, function, queue) VALUES (app, of_function, of_queue)
        RETURNING id INTO found;
    END IF;
    RETURN found;
END $$;

-- Inserts due times of one job, as given in `runs` of a change. Leaves a key that exists as it is.
CREATE OR REPLACE FUNCTION {schema}.insert_runs(of_job {schema}.job, new jsonb) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO {schema}.run (job, application, lane, generation, kind, key, scheduled_for, due_at, expires_at, state,
                              reason, count, until, owes)
    SELECT of_job.id, of_job.application, of_job.lane, of_job.generation, 'due', n ->> 'key',
           to_timestamp((n ->> 'scheduled_for')::float8), to_timestamp((n ->> 'due_at')::float8),
           to_timestamp((n ->> 'expires_at')::float8), (n ->> 'state')::{schema}.run_state, n ->> 'reason',
           (n ->> 'count')::int, to_timestamp((n ->> 'until')::float8), of_job.followed
      FROM jsonb_array_elements(new) n
     -- A past due time may have run already, and retention may have deleted its run.
     WHERE to_timestamp((n ->> 'scheduled_for')::float8) > clock_timestamp()
        OR to_timestamp((n ->> 'scheduled_for')::float8) >= of_job.kept_since
    ON CONFLICT (job, key) DO NOTHING;
    INSERT INTO {schema}.hour_touched (job, at)
    SELECT of_job.id, to_timestamp((n ->> 'scheduled_for')::float8)
      FROM jsonb_array_elements(new) n WHERE (n ->> 'scheduled_for')::float8 < date_part('epoch', now()) - 600
$$;

-- The state of an active job that has no due time left: 'done', or 'active' while a run of it is open. VOLATILE,
-- because a statement that reads what our functions have just written must see those runs.
CREATE OR REPLACE FUNCTION {schema}.state_of_planned(of_job bigint) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM {schema}.run r WHERE r.job = of_job AND r.state <= 'running')
                THEN 'active' ELSE 'done' END
$$;

-- Locks the jobs that these changes are about, together with those that one of them begins to follow, by id: two
-- sessions that do this, or change several jobs, cannot deadlock. Nothing is locked if no job gets its first follower.
CREATE OR REPLACE FUNCTION {schema}.lock_parents(of_application text, changes jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    parents bigint[];
BEGIN
    SELECT array_agg(p.id) INTO parents
      FROM (SELECT DISTINCT c #>> '{spec,after}' AS name FROM jsonb_array_elements(changes) c) f
      JOIN {schema}.application a ON a.name = of_application
      JOIN {schema}.job p ON p.application = a.id AND p.name = f.name AND NOT p.followed;
    IF parents IS NULL THEN RETURN; END IF;
    PERFORM 1 FROM {schema}.job x
      WHERE x.id = ANY (parents || ARRAY(SELECT j.id FROM jsonb_array_elements(changes) c
                                           JOIN {schema}.application a ON a.name = of_application
                                           JOIN {schema}.job j ON j.application = a.id AND j.name = c ->> 'name'))
      ORDER BY x.id FOR UPDATE;
END $$;

-- Makes one change to one job. Returns no row if the change does not apply. The lock of the job's row keeps all other
-- sessions from its unstarted runs.
CREATE OR REPLACE FUNCTION {schema}.change_job(change jsonb) RETURNS SETOF {schema}.job
LANGUAGE plpgsql ROWS 1 SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    what_   text := change ->> 'what';
    spec    jsonb := change -> 'spec';
    due     timestamptz := to_timestamp((change ->> 'next_due')::float8);
    app     int;
    j       {schema}.job%ROWTYPE;
    was     {schema}.job%ROWTYPE;
    now_    timestamptz;
    done    boolean;   -- and added at run time: such a job may be added again
    withdrawn text[];
    shortened text[];
BEGIN
    SELECT a.id INTO app FROM {schema}.application a WHERE a.name = change ->> 'application';
    -- Before now is read: no later due time of the parent can begin until this is committed.
    PERFORM {schema}.lock_parents(change ->> 'application', jsonb_build_array(change));
    SELECT * INTO j FROM {schema}.job x WHERE x.application = app AND x.name = change ->> 'name' FOR UPDATE;
    done := coalesce(j.state = 'active' AND j.next_due IS NULL AND j.trigger IS NOT NULL AND NOT j.in_code
                     AND {schema}.state_of_planned(j.id) = 'done', false);
    IF ((j.id IS NOT NULL AND (what_ <> 'added' OR j.state = 'removed' OR done)) OR spec ->> 'after' IS NOT NULL)
       AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        -- The caller's snapshot does not show runs that became PENDING after it. If the job is removed, they would stay
        -- open for ever.
        RAISE EXCEPTION 'tenure: job % cannot be changed in a % transaction, which does not see the runs that others '
            'have changed since it began',
            quote_literal(change ->> 'name'), upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'TN003', HINT = 'Change it in a READ COMMITTED transaction. A new job can be added in any.';
    END IF;
    IF j.id IS NULL AND what_ = 'added' AND change ->> 'generation' IS NULL THEN
        INSERT INTO {schema}.application (name) VALUES (change ->> 'application') ON CONFLICT DO NOTHING;
        SELECT a.id INTO app FROM {schema}.application a WHERE a.name = change ->> 'application';
        -- A tombstone, completed below. A session that adds the same job at the same time waits here and then finds it.
        INSERT INTO {schema}.job (application, name, state, generation, function, kwargs, rules, queue, overlap,
                                  on_time, on_lost, max_lost, in_code, release, tzdata, since, kept_since)
        SELECT app, change ->> 'name', 'removed', a.generation, '', '{}', '{}', '', 'skip',
               0, 'retry', 0, false, 0, '', clock_timestamp(), a.kept_since
          FROM {schema}.application a WHERE a.id = app
        ON CONFLICT DO NOTHING;
        SELECT * INTO j FROM {schema}.job x WHERE x.application = app AND x.name = change ->> 'name' FOR UPDATE;
    END IF;
    IF j.id IS NULL OR j.generation <> (change ->> 'generation')::bigint
       OR (what_ = 'added' AND j.state <> 'removed' AND NOT done) OR (what_ <> 'added' AND j.state = 'removed') THEN
        RETURN;
    END IF;
    IF what_ = 'resumed' AND j.state <> 'paused' THEN
        RETURN NEXT j;
        RETURN;
    END IF;

    now_ := clock_timestamp();
    was := j;
    j.generation := j.generation + 1;
    IF what_ IN ('added', 'updated') THEN
        j.function := spec ->> 'function';
        j.trigger := spec ->> 'trigger';
        j.kwargs := spec ->> 'kwargs';
        j.rules := spec -> 'rules';
        j.queue := spec ->> 'queue';
        j.overlap := spec ->> 'overlap';
        j.max_running := spec ->> 'max_running';
        j.pool := spec ->> 'pool';
        j.after := spec ->> 'after';
        j.after_on := coalesce(spec ->> 'after_on', 'success');
        j.followed := j.followed OR EXISTS (SELECT FROM {schema}.job f
                                             WHERE f.application = app AND f.after = j.name AND f.state <> 'removed');
        j.on_time := spec ->> 'on_time';
        j.on_lost := spec ->> 'on_lost';
        j.max_lost := spec ->> 'max_lost';
        j.in_code := spec ->> 'in_code';
        j.release := spec ->> 'release';
        j.tzdata := spec ->> 'tzdata';
        j.override := nullif(change -> 'override', 'null');
        j.defined_at := now_;
    END IF;
    IF what_ <> 'updated' THEN
        j.removed_at := CASE what_ WHEN 'removed' THEN now_ END;
        j.removed_by := CASE what_ WHEN 'removed' THEN change ->> 'by' ELSE '' END;
        j.state := CASE what_ WHEN 'paused' THEN 'paused' WHEN 'removed' THEN 'removed' ELSE 'active' END;
        j.paused_until := CASE what_ WHEN 'paused' THEN to_timestamp((change ->> 'until')::float8) END;
        j.paused_by := CASE what_ WHEN 'paused' THEN change ->> 'by' ELSE '' END;
        j.paused_why := CASE what_ WHEN 'paused' THEN change ->> 'why' ELSE '' END;
    END IF;
    IF what_ <> 'paused' THEN
        j.next_due := CASE what_ WHEN 'removed' THEN NULL ELSE due END;
        j.next_reading := CASE what_ WHEN 'removed' THEN NULL ELSE change ->> 'next_reading' END;
    END IF;
    IF what_ IN ('added', 'resumed') OR (what_ = 'updated' AND j.trigger IS DISTINCT FROM was.trigger) THEN
        j.since := now_;
    END IF;
    j.lane := CASE j.state WHEN 'active' THEN {schema}.lane_of(app, j.function, j.queue) END;
    UPDATE {schema}.job x
       SET (state, generation, next_due, next_reading, function, trigger, kwargs, rules, queue, lane, overlap,
            max_running, pool, after, after_on, followed, on_time, on_lost, max_lost, in_code, release, tzdata,
            override, paused_until, paused_by, paused_why, since, defined_at, removed_at, removed_by)
         = ROW (j.state, j.generation, j.next_due, j.next_reading, j.function, j.trigger, j.kwargs, j.rules, j.queue,
                j.lane, j.overlap, j.max_running, j.pool, j.after, j.after_on, j.followed, j.on_time, j.on_lost,
                j.max_lost, j.in_code, j.release, j.tzdata, j.override,
                j.paused_until, j.paused_by, j.paused_why, j.since, j.defined_at, j.removed_at, j.removed_by)
     WHERE x.id = j.id;
    WITH parent AS (   -- its runs that have not begun owe this job a run
        UPDATE {schema}.job p SET followed = true
         WHERE p.application = app AND p.name = spec ->> 'after' AND NOT p.followed
        RETURNING p.id
    )
    UPDATE {schema}.run r SET owes = true
      FROM parent p WHERE r.job = p.id AND r.state IN ('pending', 'waiting') AND r.state <= 'running';

    DELETE FROM {schema}.run r   -- until they are due, planned runs are only proposals
     WHERE r.job = j.id AND r.state = 'pending' AND r.kind = 'due' AND r.attempt = 0 AND r.scheduled_for > now_
       AND was.after IS NULL;
    WITH gone AS (   -- skipped while the clock was ahead
        DELETE FROM {schema}.run r
         WHERE r.job = j.id AND r.state > 'running' AND r.scheduled_for > now_ AND r.state = 'skipped'
           AND r.kind = 'due' AND was.after IS NULL
        RETURNING r.key
    )
    SELECT array_agg(g.key) INTO withdrawn FROM gone g;
    WITH cut AS (
        UPDATE {schema}.run r SET until = now_
         WHERE r.job = j.id AND r.state > 'running' AND r.state = 'skipped' AND r.until > now_
        RETURNING r.key
    )
    SELECT array_agg(c.key) INTO shortened FROM cut c;
    IF coalesce(withdrawn, shortened) IS NOT NULL AND j.followed THEN
        PERFORM {schema}.withdraw_behind(j, coalesce(withdrawn, '{}'), coalesce(shortened, '{}'), now_);
    END IF;
    IF j.state = 'active' OR what_ IN ('paused', 'removed') THEN   -- what was due before ends with the others
        PERFORM {schema}.insert_runs(j, change -> 'runs');
    END IF;
    IF what_ = 'removed' THEN   -- of runs between two attempts
        PERFORM {schema}.keep_attempts(ARRAY(SELECT r.id FROM {schema}.run r
                                              WHERE r.job = j.id AND r.attempt > 0 AND r.state <= 'running'
                                                AND r.token IS NULL));
    END IF;
    UPDATE {schema}.run r
       SET state = CASE WHEN what_ = 'removed' THEN 'cancelled'
                        WHEN what_ = 'paused' AND r.kind = 'due' AND r.attempt = 0 THEN 'skipped'
                        WHEN r.pool IS NOT NULL THEN 'pending'   -- it waits for a pool, and the job may have another
                        ELSE r.state END::{schema}.run_state,
           reason = CASE WHEN what_ = 'removed' OR (what_ = 'paused' AND r.kind = 'due' AND r.attempt = 0) THEN what_
                         ELSE r.reason END,
           finished_at = CASE WHEN what_ = 'removed' OR (what_ = 'paused' AND r.kind = 'due' AND r.attempt = 0)
                              THEN now_ ELSE r.finished_at END,
           generation = CASE WHEN what_ = 'removed' OR (what_ = 'paused' AND r.kind = 'due' AND r.attempt = 0)
                             THEN r.generation ELSE j.generation END,
           pool = CASE WHEN what_ = 'removed' OR (what_ = 'paused' AND r.kind = 'due' AND r.attempt = 0)
                       THEN r.pool END,
           lane = j.lane, entered = pg_current_xact_id()
     WHERE r.job = j.id AND r.state IN ('pending', 'waiting');
    IF what_ = 'removed' THEN
        PERFORM {schema}.cancel_backfills(j, change ->> 'by', 'the job was removed');
    END IF;
    INSERT INTO {schema}.job_change (job, generation, at, what, trigger, by, why, until, after)
    VALUES (j.id, j.generation, now_, what_, j.trigger, change ->> 'by', change ->> 'why',
            to_timestamp((change ->> 'until')::float8), j.after);
    PERFORM {schema}.note_action(change ->> 'application', j.name, NULL, change -> 'action');
    PERFORM {schema}.notify_nodes(app);
    RETURN NEXT j;
END $$;

-- Makes one change to each of many jobs of one application. Existing jobs come first, by id, so two sessions cannot
-- deadlock. `changed` is NULL where a change did not apply.
CREATE OR REPLACE FUNCTION {schema}.change_jobs(changes jsonb) RETURNS TABLE (place bigint, changed {schema}.job)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    one jsonb;
BEGIN
    PERFORM {schema}.lock_parents(changes #>> '{0,application}', changes);
    FOR one, place IN
        SELECT t.change, t.place
          FROM jsonb_array_elements(changes) WITH ORDINALITY AS t (change, place)
          LEFT JOIN {schema}.application a ON a.name = t.change ->> 'application'
          LEFT JOIN {schema}.job x ON x.application = a.id AND x.name = t.change ->> 'name'
         ORDER BY x.id NULLS LAST, t.change ->> 'name', t.place
    LOOP
        changed := NULL;
        SELECT c.* INTO changed FROM {schema}.change_job(one) c;
        RETURN NEXT;
    END LOOP;
END $$;

-- Brings the jobs defined in code into the ledger, when a node starts. Existing jobs come first, by id, so two nodes
-- cannot deadlock. The comparison is with what the code said last, so a manual update holds until the code changes.
-- Returns each job as it is and as it was.
CREATE OR REPLACE FUNCTION {schema}.sync_jobs(of_application text, of_release bigint, changes jsonb)
RETURNS TABLE (after {schema}.job, before {schema}.job)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    change jsonb;
    spec   jsonb;
    j      {schema}.job%ROWTYPE;
    said   jsonb;     -- by the code, the last time
    equal  boolean;
    added  boolean;
BEGIN
    PERFORM {schema}.lock_parents(of_application, changes);
    FOR change IN
        SELECT c FROM jsonb_array_elements(changes) WITH ORDINALITY AS t (c, place)
          LEFT JOIN {schema}.application a ON a.name = of_application
          LEFT JOIN {schema}.job x ON x.application = a.id AND x.name = c ->> 'name'
         ORDER BY x.id NULLS LAST, c ->> 'name', place
    LOOP
        spec := change -> 'spec';
        before := NULL;
        SELECT x.* INTO j FROM {schema}.job x JOIN {schema}.application a ON a.id = x.application
         WHERE a.name = of_application AND x.name = change ->> 'name';
        IF j.id IS NULL THEN
            PERFORM {schema}.change_job(change || '{"what": "added"}');
            added := FOUND;
            SELECT x.* INTO j FROM {schema}.job x JOIN {schema}.application a ON a.id = x.application
             WHERE a.name = of_application AND x.name = change ->> 'name';
            IF added THEN
                after := j;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        before := j;
        said := coalesce(j.override -> 'code',
                         jsonb_build_object('function', j.function, 'trigger', j.trigger, 'kwargs', j.kwargs,
                                            'rules', j.rules));
        equal := (j.in_code OR j.override IS NOT NULL) = (spec ->> 'in_code')::boolean
                 AND said = jsonb_build_object('function', spec -> 'function', 'trigger', spec -> 'trigger',
                                               'kwargs', spec -> 'kwargs', 'rules', spec -> 'rules');
        -- The row of a removed or done job must stay while code defines it. Written at most once a minute.
        IF (j.in_code OR j.override IS NOT NULL)
           AND (j.state = 'removed' OR (j.state = 'active' AND j.next_due IS NULL AND j.trigger IS NOT NULL))
           AND (j.defined_at <= j.removed_at OR j.defined_at < clock_timestamp() - interval '1 minute') THEN
            UPDATE {schema}.job x SET defined_at = clock_timestamp() WHERE x.id = j.id;
        END IF;
        IF j.release > of_release THEN
            NULL;
        ELSIF j.state = 'removed' AND NOT equal THEN
            PERFORM {schema}.change_job(change || '{"what": "added"}');
        ELSIF NOT equal THEN
            PERFORM {schema}.change_job(change || '{"what": "updated"}');
        ELSIF j.release < of_release OR (j.override IS NULL AND j.tzdata < spec ->> 'tzdata') THEN
            UPDATE {schema}.job x
               SET release = of_release,
                   tzdata = CASE WHEN x.override IS NULL THEN greatest(x.tzdata, spec ->> 'tzdata') ELSE x.tzdata END
             WHERE x.id = j.id AND x.release <= of_release;
        END IF;
        SELECT x.* INTO after FROM {schema}.job x WHERE x.id = j.id;
        RETURN NEXT;
    END LOOP;
END $$;

-- Reopens a run that is in one of these states and stands for one due time. It keeps its attempts, and what the last
-- one left; it has no place until it is claimed. `ahead` is as in `request_backfilled`. The caller has locked the job.
-- Waits for a session that has reopened the run, or is deleting it.
CREATE OR REPLACE FUNCTION {schema}.reopen_run(
    of_run bigint, states text[], said_by text, arguments text, span text, ahead interval
) RETURNS SETOF {schema}.run
LANGUAGE plpgsql ROWS 1 SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    RETURN QUERY
    UPDATE {schema}.run x
       SET state = 'pending', lane = j.lane, entered = pg_current_xact_id(), generation = j.generation,
           kind = CASE x.kind WHEN 'manual' THEN x.kind ELSE 'backfill' END,
           due_at = greatest(clock_timestamp() - ahead, x.scheduled_for), expires_at = NULL, reopened = x.attempt,
           failures = 0, losses = 0, interruptions = 0, stopping = false,
           outcome = CASE WHEN x.attempt > 0 THEN coalesce(x.outcome, x.state::text) END,
           reason = CASE x.attempt WHEN 0 THEN '' ELSE x.reason END,
           finished_at = CASE x.attempt WHEN 0 THEN NULL ELSE x.finished_at END,
           looks = NULL, looking_since = NULL, last_look = NULL, pool = NULL, owes = j.followed,
           by = said_by, slot = NULL, kwargs = coalesce(arguments, x.kwargs), traceparent = span
      FROM {schema}.job j
     WHERE x.id = of_run AND x.state = ANY (states::{schema}.run_state[]) AND x.count = 1
       AND j.id = x.job
    RETURNING x.*;
    INSERT INTO {schema}.hour_touched (job, at)
    SELECT x.job, x.scheduled_for FROM {schema}.run x
     WHERE FOUND AND x.id = of_run AND x.scheduled_for < now() - interval '10 minutes';
END $$;

-- Retries runs: reopens those that did not succeed. Returns the runs that it reopened.
CREATE OR REPLACE FUNCTION {schema}.retry_runs(runs bigint[], said_by text, action jsonb, span text)
RETURNS SETOF {schema}.run
LANGUAGE plpgsql ROWS 1 SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    one  bigint;
    done bigint[] := '{}';   -- the runs that are open again
BEGIN
    FOR one IN SELECT DISTINCT x.id FROM unnest(runs) AS x (id) ORDER BY x.id LOOP
        PERFORM 1 FROM {schema}.job j
          WHERE j.id = (SELECT x.job FROM {schema}.run x WHERE x.id = one) AND j.state <> 'removed' FOR KEY SHARE;
        IF FOUND THEN
            RETURN QUERY
            SELECT * FROM {schema}.reopen_run(one, '{failed,lost,cancelled,skipped}', said_by, NULL, span, '0');
            IF FOUND THEN
                done := done || one;
            END IF;
        END IF;
    END LOOP;
    PERFORM {schema}.note_action(a.name, j.name, CASE d.runs WHEN 1 THEN d.run END, action)
       FROM (SELECT r.job, count(*) AS runs, min(r.id) AS run FROM {schema}.run r
              WHERE r.id = ANY (done) GROUP BY r.job) d
       JOIN {schema}.job j ON j.id = d.job JOIN {schema}.application a ON a.id = j.application;
    PERFORM {schema}.notify_nodes(d.application)
       FROM (SELECT DISTINCT r.application FROM {schema}.run r WHERE r.id = ANY (done)) d;
END $$;

-- Requests runs. Returns one row for each request, in order; a row of NULLs where nothing was done. `digest` is NULL,
-- except for a run that retention has deleted while its key is kept.
CREATE OR REPLACE FUNCTION {schema}.request_runs(requests jsonb) RETURNS TABLE (run {schema}.run, digest text)
LANGUAGE plpgsql ROWS 1 SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    a    jsonb;
    j    {schema}.job%ROWTYPE;
    r    {schema}.run%ROWTYPE;
    k    {schema}.kept_key%ROWTYPE;
    now_ timestamptz;
    made boolean;
    done bigint[] := '{}';   -- the jobs whose action is recorded
    due  timestamptz;
BEGIN
    FOR a IN SELECT jsonb_array_elements(requests) LOOP
        r := NULL;
        made := false;
        digest := NULL;
        SELECT x.* INTO j FROM {schema}.job x JOIN {schema}.application p ON p.id = x.application
         WHERE p.name = a ->> 'application' AND x.name = a ->> 'name' AND x.state <> 'removed' FOR KEY SHARE OF x;
        IF FOUND THEN
            now_ := clock_timestamp();
            due := coalesce(to_timestamp((a ->> 'scheduled_for')::float8), now_);
            -- The second pass is for a row that retention deleted during the first. With a slot there is another pass
            -- whenever a node has claimed the run that had it.
            FOR pass IN 1..CASE WHEN a ->> 'slot' IS NULL THEN 2 ELSE 1000 END LOOP
                INSERT INTO {schema}.run (job, application, lane, generation, kind, key, scheduled_for, due_at, state,
                                          by, slot, kwargs, traceparent, owes)
                SELECT j.id, j.application, j.lane, j.generation,
                       CASE WHEN (a ->> 'backfill')::boolean THEN 'backfill' ELSE 'manual' END::{schema}.run_kind,
                       a ->> 'key', due, greatest(now_, due), 'pending', a ->> 'by', a ->> 'slot',
                       a ->> 'kwargs', nullif(a ->> 'traceparent', ''), j.followed
                 -- Search first: a conflict with a row that another session has changed would wait for its commit.
                 WHERE NOT EXISTS (SELECT FROM {schema}.run x WHERE x.job = j.id AND x.key = a ->> 'key')
                 -- In the same statement: a snapshot that shows that retention deleted the run also shows the kept key.
                   AND NOT EXISTS (SELECT FROM {schema}.kept_key x WHERE x.job = j.id AND x.key = a ->> 'key')
                   AND (NOT (a ->> 'backfill')::boolean OR (a ->> 'even_forgotten')::boolean
                        OR to_timestamp((a ->> 'scheduled_for')::float8)
                           >= (SELECT x.kept_since FROM {schema}.job x WHERE x.id = j.id))
                   AND (a ->> 'slot' IS NULL OR NOT EXISTS
                        (SELECT FROM {schema}.run x
                          WHERE x.application = j.application AND x.slot = a ->> 'slot' AND x.job = j.id
                            AND x.attempt = 0 AND x.state <= 'waiting'))
                ON CONFLICT DO NOTHING
                RETURNING * INTO r;
                made := FOUND;
                IF made AND due < now_ - interval '10 minutes' THEN
                    INSERT INTO {schema}.hour_touched (job, at) VALUES (j.id, due);
                END IF;
                EXIT WHEN made;
                IF NOT (a ->> 'backfill')::boolean THEN
                    SELECT x.* INTO r FROM {schema}.run x WHERE x.job = j.id AND x.key = a ->> 'key';
                    EXIT WHEN FOUND;
                    SELECT x.* INTO k FROM {schema}.kept_key x WHERE x.job = j.id AND x.key = a ->> 'key';
                    IF FOUND THEN
                        r.id := k.run; r.job := k.job; r.application := k.application; r.key := k.key;
                        r.kind := 'manual'; r.state := k.state; r.scheduled_for := k.scheduled_for;
                        r.due_at := k.scheduled_for; r.generation := 0;
                        r.started_at := k.started_at; r.finished_at := k.finished_at;
                        r.attempt := 0; r.failures := 0; r.losses := 0; r.interruptions := 0; r.stopping := false;
                        r.count := 1; r.label := ''; r.reason := ''; r.by := '';
                        digest := k.digest;
                        EXIT;
                    END IF;
                    -- Waits for a claim of the run. When that has committed, the condition no longer holds. A run that
                    -- is kept is locked too: it begins after the caller's commit, and so finds what the caller wrote.
                    UPDATE {schema}.run x
                       SET (state, entered, kwargs, by, traceparent, scheduled_for, due_at)
                         = (SELECT 'pending'::{schema}.run_state, pg_current_xact_id(), a ->> 'kwargs', a ->> 'by',
                                   nullif(a ->> 'traceparent', ''), t.at, greatest(now_, t.at)
                              FROM (SELECT CASE a ->> 'if_waiting' WHEN 'later' THEN greatest(due, x.scheduled_for)
                                                                   ELSE due END AS at) t)
                     WHERE x.application = j.application AND x.slot = a ->> 'slot' AND x.job = j.id
                       AND x.attempt = 0 AND x.state <= 'waiting' AND a ->> 'if_waiting' <> 'keep'
                    RETURNING * INTO r;
                    made := FOUND;
                    EXIT WHEN made;
                    SELECT x.* INTO r FROM {schema}.run x
                     WHERE x.application = j.application AND x.slot = a ->> 'slot' AND x.job = j.id
                       AND x.attempt = 0 AND x.state <= 'waiting' AND a ->> 'if_waiting' = 'keep'
                       FOR NO KEY UPDATE;
                    EXIT WHEN FOUND;
                    CONTINUE;
                END IF;
                SELECT x.* INTO r FROM {schema}.run o
                 CROSS JOIN LATERAL {schema}.reopen_run(o.id, '{skipped,cancelled,lost}', a ->> 'by', a ->> 'kwargs',
                                                        nullif(a ->> 'traceparent', ''), '0') x
                 WHERE o.job = j.id AND o.key = a ->> 'key';
                made := FOUND;
                EXIT WHEN made;
            END LOOP;
            IF made AND jsonb_typeof(a -> 'action') = 'object' AND NOT j.id = ANY (done) THEN
                done := done || j.id;
                PERFORM {schema}.note_action(a ->> 'application', j.name,
                                             CASE WHEN NOT (a ->> 'backfill')::boolean THEN r.id END, a -> 'action');
            END IF;
            IF r.id IS NOT NULL THEN
                PERFORM {schema}.notify_nodes(j.application);
            END IF;
        END IF;
        run := r;
        RETURN NEXT;
    END LOOP;
END $$;

-- Sets the size of a pool, and wakes the nodes. A claim may hold the row of the pool for a moment.
CREATE OR REPLACE FUNCTION {schema}.set_pool(of_application text, of_name text, new_size int, action jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    app int;
BEGIN
    INSERT INTO {schema}.application (name) VALUES (of_application) ON CONFLICT DO NOTHING;
    SELECT a.id INTO app FROM {schema}.application a WHERE a.name = of_application;
    PERFORM pg_advisory_xact_lock({schema}.key_of_pool(app, of_name));
    INSERT INTO {schema}.pool (application, name, size) VALUES (app, of_name, new_size)
    ON CONFLICT (application, name) DO UPDATE SET size = excluded.size WHERE pool.size IS DISTINCT FROM excluded.size;
    IF FOUND THEN
        PERFORM {schema}.note_action(of_application, of_name, NULL, action);
        PERFORM {schema}.notify_nodes(app);
    END IF;
END $$;

-- Cancels runs that have not begun, and requests the end of RUNNING ones. Returns the runs as they are then.
CREATE OR REPLACE FUNCTION {schema}.cancel_runs(runs bigint[], said text, action jsonb) RETURNS SETOF {schema}.run
LANGUAGE plpgsql ROWS 1 SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    left_  bigint[] := runs;
    locked bigint[];
    done   bigint[] := '{}';   -- those that were open
BEGIN
    PERFORM 1 FROM {schema}.job j
      WHERE j.id IN (SELECT x.job FROM {schema}.run x WHERE x.id = ANY (runs)) ORDER BY j.id FOR UPDATE;
    FOR pass IN 1..20 LOOP
        locked := ARRAY(SELECT x.id FROM {schema}.run x WHERE x.id = ANY (left_) AND x.state <= 'running'
                         ORDER BY x.id FOR NO KEY UPDATE SKIP LOCKED);
        -- Only a claim can have locked a run that has not begun. The claim skips our jobs, waits for nothing and ends
        -- soon, so the updates below may wait for it.
        locked := locked || ARRAY(SELECT x.id FROM {schema}.run x
                                   WHERE x.id = ANY (left_) AND x.id <> ALL (locked)
                                     AND x.state IN ('pending', 'waiting'));
        done := done || locked;
        left_ := ARRAY(SELECT x.id FROM {schema}.run x
                        WHERE x.id = ANY (left_) AND x.id <> ALL (locked) AND x.state = 'running');
        EXIT WHEN cardinality(left_) = 0;
        PERFORM pg_sleep(0.005);   -- a reconciliation unlocks at once; a body that is about to complete does not
    END LOOP;
    PERFORM {schema}.keep_attempts(ARRAY(SELECT x.id FROM {schema}.run x
                                          WHERE x.id = ANY (done) AND x.state IN ('pending', 'waiting')));
    UPDATE {schema}.run x SET asked_to_end = said
     WHERE x.id = ANY (done) AND x.state = 'running' AND x.asked_to_end = '';
    UPDATE {schema}.run x SET state = 'cancelled', reason = said, finished_at = clock_timestamp()
     WHERE x.id = ANY (done) AND x.state IN ('pending', 'waiting');
    PERFORM {schema}.note_action(a.name, j.name, CASE d.runs WHEN 1 THEN d.run END,
                                 CASE d.runs WHEN 1 THEN action
                                             ELSE action || jsonb_build_object('detail', d.runs || ' runs') END)
       FROM (SELECT r.job, count(*) AS runs, min(r.id) AS run FROM {schema}.run r
              WHERE r.id = ANY (done) GROUP BY r.job) d
       JOIN {schema}.job j ON j.id = d.job JOIN {schema}.application a ON a.id = j.application;
    PERFORM {schema}.notify_nodes(d.application)
       FROM (SELECT DISTINCT r.application FROM {schema}.run r WHERE r.id = ANY (done)) d;
    RETURN QUERY SELECT * FROM {schema}.run x WHERE x.id = ANY (runs);
END $$;
