-- What people do to jobs and runs. Called by name with plain parameters, so that any driver can do it inside its own transaction.

CREATE FUNCTION {schema}.wake(app int) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_notify('{channel}', '!' || a.name) FROM {schema}.application a WHERE a.id = app
$$;

-- The lanes of an application, of these functions or of all.
CREATE FUNCTION {schema}.lanes_of(app int, functions text[]) RETURNS SETOF {schema}.lane
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    IF functions IS NULL THEN
        RETURN QUERY SELECT l.* FROM {schema}.lane l WHERE l.application = app;
    ELSE
        RETURN QUERY SELECT l.* FROM unnest(functions) AS f (name) JOIN {schema}.lane l ON l.application = app AND l.function = f.name;
    END IF;
END $$;

-- The lane of a job; a new one, if it is the first of its kind.
CREATE FUNCTION {schema}.lane_of(app int, of_function text, of_queue text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found int := (SELECT min(l.id) FROM {schema}.lane l WHERE l.application = app AND l.function = of_function AND l.queue = of_queue);
BEGIN
    IF found IS NULL THEN
        INSERT INTO {schema}.lane (application, function, queue) VALUES (app, of_function, of_queue) RETURNING id INTO found;
    END IF;
    RETURN found;
END $$;

-- Due times of one job, as in `runs` of a change. A key that is there already is left as it is.
CREATE FUNCTION {schema}.insert_runs(of_job {schema}.job, new jsonb) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO {schema}.run (job, application, lane, generation, kind, key, scheduled_for, due_at, expires_at, state, reason, count, until)
    SELECT of_job.id, of_job.application, of_job.lane, of_job.generation, 'due', n ->> 'key',
           to_timestamp((n ->> 'scheduled_for')::float8), to_timestamp((n ->> 'due_at')::float8), to_timestamp((n ->> 'expires_at')::float8),
           (n ->> 'state')::{schema}.run_state, n ->> 'reason', (n ->> 'count')::int, to_timestamp((n ->> 'until')::float8)
      FROM jsonb_array_elements(new) n
     -- A due time of the past may have run before retention removed its run.
     WHERE to_timestamp((n ->> 'scheduled_for')::float8) > clock_timestamp()
        OR to_timestamp((n ->> 'scheduled_for')::float8) >= of_job.kept_since
    ON CONFLICT (job, key) DO NOTHING
$$;

-- An active job without a due time left is done, unless a run of it is still open. VOLATILE: a statement that reads what a function
-- of ours has just written must see those runs.
CREATE FUNCTION {schema}.state_of_planned(of_job bigint) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM {schema}.run r WHERE r.job = of_job AND r.state <= 'running') THEN 'active' ELSE 'done' END
$$;

-- One change to one job; no row where there is nothing to change. The row's lock keeps everybody else from its unstarted runs.
CREATE FUNCTION {schema}.change_job(change jsonb) RETURNS SETOF {schema}.job
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
BEGIN
    SELECT a.id INTO app FROM {schema}.application a WHERE a.name = change ->> 'application';
    SELECT * INTO j FROM {schema}.job x WHERE x.application = app AND x.name = change ->> 'name' FOR UPDATE;
    done := coalesce(j.state = 'active' AND j.next_due IS NULL AND j.trigger IS NOT NULL AND NOT j.in_code
                     AND {schema}.state_of_planned(j.id) = 'done', false);
    IF j.id IS NOT NULL AND (what_ <> 'added' OR j.state = 'removed' OR done)
       AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        -- Runs that became PENDING after the caller's snapshot would be left behind: open for ever if the job is removed.
        RAISE EXCEPTION 'tenure: job % cannot be changed in a % transaction, which does not see the runs that others have changed since it began',
            quote_literal(j.name), upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'TN003', HINT = 'Change it in a READ COMMITTED transaction. A new job can be added in any.';
    END IF;
    IF j.id IS NULL AND what_ = 'added' AND change ->> 'generation' IS NULL THEN
        INSERT INTO {schema}.application (name) VALUES (change ->> 'application') ON CONFLICT DO NOTHING;
        SELECT a.id INTO app FROM {schema}.application a WHERE a.name = change ->> 'application';
        -- A tombstone until it is filled in below: whoever adds it at the same time waits here, and finds it there.
        INSERT INTO {schema}.job (application, name, state, generation, function, kwargs, rules, queue, overlap, on_time, on_lost, max_lost,
                                  in_code, release, tzdata, since, kept_since)
        SELECT app, change ->> 'name', 'removed', a.generation, '', '{}', '{}', '', 'skip', 0, 'retry', 0, false, 0, '', clock_timestamp(),
               a.kept_since
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
       SET (state, generation, next_due, next_reading, function, trigger, kwargs, rules, queue, lane, overlap, max_running, on_time, on_lost, max_lost,
            in_code, release, tzdata, override, paused_until, paused_by, paused_why, since, defined_at, removed_at, removed_by)
         = ROW (j.state, j.generation, j.next_due, j.next_reading, j.function, j.trigger, j.kwargs, j.rules, j.queue, j.lane, j.overlap, j.max_running, j.on_time,
                j.on_lost, j.max_lost, j.in_code, j.release, j.tzdata, j.override, j.paused_until, j.paused_by, j.paused_why, j.since,
                j.defined_at, j.removed_at, j.removed_by)
     WHERE x.id = j.id;

    DELETE FROM {schema}.run r   -- proposals, until they are due
     WHERE r.job = j.id AND r.state = 'pending' AND r.kind = 'due' AND r.attempt = 0 AND r.scheduled_for > now_;
    DELETE FROM {schema}.run r   -- the clock was ahead for a while when these were decided
     WHERE r.job = j.id AND r.state > 'running' AND r.scheduled_for > now_ AND r.state = 'skipped' AND r.kind = 'due';
    UPDATE {schema}.run r SET until = now_ WHERE r.job = j.id AND r.state > 'running' AND r.state = 'skipped' AND r.until > now_;
    IF j.state = 'active' OR what_ IN ('paused', 'removed') THEN   -- what was due before a pause or a removal shares the fate of the others
        PERFORM {schema}.insert_runs(j, change -> 'runs');
    END IF;
    UPDATE {schema}.run r
       SET state = CASE WHEN what_ = 'removed' THEN 'cancelled'
                        WHEN what_ = 'paused' AND r.kind = 'due' AND r.attempt = 0 THEN 'skipped'
                        ELSE r.state END::{schema}.run_state,
           reason = CASE WHEN what_ = 'removed' OR (what_ = 'paused' AND r.kind = 'due' AND r.attempt = 0) THEN what_ ELSE r.reason END,
           finished_at = CASE WHEN what_ = 'removed' OR (what_ = 'paused' AND r.kind = 'due' AND r.attempt = 0) THEN now_ END,
           generation = CASE WHEN what_ = 'removed' OR (what_ = 'paused' AND r.kind = 'due' AND r.attempt = 0) THEN r.generation
                             ELSE j.generation END,
           lane = j.lane, entered = pg_current_xact_id()
     WHERE r.job = j.id AND r.state IN ('pending', 'waiting');
    INSERT INTO {schema}.job_change (job, generation, at, what, trigger, by, why, until)
    VALUES (j.id, j.generation, now_, what_, j.trigger, change ->> 'by', change ->> 'why', to_timestamp((change ->> 'until')::float8));
    PERFORM {schema}.wake(app);
    RETURN NEXT j;
END $$;

-- The jobs defined in code, at start: those that are there come first, by id, so that two nodes do not lock each other out.
-- Compared with what the code last said, so that an update by hand holds until the code says something else. Returns each job as it
-- is, and as it was.
CREATE FUNCTION {schema}.sync_jobs(of_application text, of_release bigint, changes jsonb) RETURNS TABLE (after {schema}.job, before {schema}.job)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    change jsonb;
    spec   jsonb;
    j      {schema}.job%ROWTYPE;
    said   jsonb;     -- by the code, the last time
    equal  boolean;
    added  boolean;
BEGIN
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
                         jsonb_build_object('function', j.function, 'trigger', j.trigger, 'kwargs', j.kwargs, 'rules', j.rules));
        equal := (j.in_code OR j.override IS NOT NULL) = (spec ->> 'in_code')::boolean
                 AND said = jsonb_build_object('function', spec -> 'function', 'trigger', spec -> 'trigger', 'kwargs', spec -> 'kwargs',
                                               'rules', spec -> 'rules');
        -- Code still defines what was removed, or is done: its row must stay. Not written more than once a minute.
        IF (j.in_code OR j.override IS NOT NULL) AND (j.state = 'removed' OR (j.state = 'active' AND j.next_due IS NULL AND j.trigger IS NOT NULL))
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
               SET release = of_release, tzdata = CASE WHEN x.override IS NULL THEN greatest(x.tzdata, spec ->> 'tzdata') ELSE x.tzdata END
             WHERE x.id = j.id AND x.release <= of_release;
        END IF;
        SELECT x.* INTO after FROM {schema}.job x WHERE x.id = j.id;
        RETURN NEXT;
    END LOOP;
END $$;

-- One row for each that was asked, in order; a row of nulls where nothing was done.
-- `digest` is null, but for a run that retention has removed and of which the key is kept.
CREATE FUNCTION {schema}.ask_runs(asked jsonb) RETURNS TABLE (run {schema}.run, digest text)
LANGUAGE plpgsql ROWS 1 SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    a    jsonb;
    j    {schema}.job%ROWTYPE;
    r    {schema}.run%ROWTYPE;
    k    {schema}.kept_key%ROWTYPE;
    now_ timestamptz;
BEGIN
    FOR a IN SELECT jsonb_array_elements(asked) LOOP
        r := NULL;
        digest := NULL;
        SELECT x.* INTO j FROM {schema}.job x JOIN {schema}.application p ON p.id = x.application
         WHERE p.name = a ->> 'application' AND x.name = a ->> 'name' AND x.state <> 'removed' FOR KEY SHARE OF x;
        IF FOUND THEN
            now_ := clock_timestamp();
            FOR pass IN 1..2 LOOP   -- again, if retention removed the row that was there
                INSERT INTO {schema}.run (job, application, lane, generation, kind, key, scheduled_for, due_at, state, by, kwargs)
                SELECT j.id, j.application, j.lane, j.generation, CASE WHEN (a ->> 'backfill')::boolean THEN 'backfill' ELSE 'asked' END::{schema}.run_kind,
                       a ->> 'key', coalesce(to_timestamp((a ->> 'scheduled_for')::float8), now_), now_, 'pending', a ->> 'by', a ->> 'kwargs'
                 -- Looked for first: a conflict with a row that somebody has changed would wait for their commit.
                 WHERE NOT EXISTS (SELECT FROM {schema}.run x WHERE x.job = j.id AND x.key = a ->> 'key')
                 -- Asked in the same statement: whoever sees that retention removed the row sees the mark that moved with it.
                   AND NOT EXISTS (SELECT FROM {schema}.kept_key x WHERE x.job = j.id AND x.key = a ->> 'key')
                   AND (NOT (a ->> 'backfill')::boolean OR (a ->> 'even_forgotten')::boolean
                        OR to_timestamp((a ->> 'scheduled_for')::float8) >= (SELECT x.kept_since FROM {schema}.job x WHERE x.id = j.id))
                ON CONFLICT (job, key) DO NOTHING
                RETURNING * INTO r;
                EXIT WHEN FOUND;
                IF NOT (a ->> 'backfill')::boolean THEN
                    SELECT x.* INTO r FROM {schema}.run x WHERE x.job = j.id AND x.key = a ->> 'key';
                    EXIT WHEN FOUND;
                    SELECT x.* INTO k FROM {schema}.kept_key x WHERE x.job = j.id AND x.key = a ->> 'key';
                    IF FOUND THEN
                        r.id := k.run; r.job := k.job; r.application := k.application; r.key := k.key; r.kind := 'asked'; r.state := k.state;
                        r.scheduled_for := k.scheduled_for; r.due_at := k.scheduled_for; r.generation := 0;
                        r.started_at := k.started_at; r.finished_at := k.finished_at;
                        r.attempt := 0; r.failures := 0; r.losses := 0; r.interruptions := 0; r.stopping := false; r.count := 1; r.label := ''; r.reason := ''; r.by := '';
                        digest := k.digest;
                        EXIT;
                    END IF;
                    CONTINUE;
                END IF;
                UPDATE {schema}.run x   -- it begins from nothing
                   SET state = 'pending', lane = j.lane, entered = pg_current_xact_id(),
                       kind = 'backfill', generation = j.generation, due_at = now_, expires_at = NULL, reason = '',
                       attempt = 0, failures = 0, losses = 0, interruptions = 0, stopping = false, node = NULL, label = '', by = a ->> 'by', kwargs = a ->> 'kwargs',
                       claimed_at = NULL, started_at = NULL, finished_at = NULL
                 WHERE x.job = j.id AND x.key = a ->> 'key' AND x.state IN ('skipped', 'cancelled', 'lost') AND x.count = 1
                RETURNING * INTO r;
                EXIT WHEN FOUND;
            END LOOP;
            IF r.id IS NOT NULL THEN
                PERFORM {schema}.wake(j.application);
            END IF;
        END IF;
        run := r;
        RETURN NEXT;
    END LOOP;
END $$;

-- Retention of jobs: those that are removed or done, that no code has defined since an instant, and of which `prune_runs` has left
-- neither a run nor a key, are deleted. So are their changes, at most ten times as many as jobs, so that no statement is a long one: a job goes with the last of them.
-- It runs as its owner, who alone may delete a job; whoever calls it may have no more deleted than this.
CREATE FUNCTION {schema}.forget_jobs(of_application text, old float8, defined text[], at_most int, OUT forgotten bigint, OUT more boolean)
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
    UPDATE {schema}.job j SET defined_at = now_   -- nodes that are alive have the code of these; to be written now and then is enough
     WHERE j.id IN (SELECT o.id FROM {schema}.job o
                     WHERE o.application = app AND (o.state = 'removed' OR (o.state = 'active' AND o.next_due IS NULL AND o.trigger IS NOT NULL))
                       AND o.defined_at < now_ - (now_ - before) / 10 AND (o.in_code OR o.override IS NOT NULL)
                       AND coalesce(o.override #>> '{code,function}', o.function) = ANY (defined)
                     ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED);
    SELECT array_agg(l.id) INTO found_
      FROM (SELECT j.id FROM {schema}.job j
             WHERE j.application = app AND (j.state = 'removed' OR (j.state = 'active' AND j.next_due IS NULL AND j.trigger IS NOT NULL))
               AND NOT ((j.in_code OR j.override IS NOT NULL) AND coalesce(j.override #>> '{code,function}', j.function) = ANY (defined))   -- the update may have passed it by
               AND j.defined_at < before AND j.since < before AND (j.removed_at IS NULL OR j.removed_at < before)
               AND NOT EXISTS (SELECT FROM {schema}.run r WHERE r.job = j.id)
               AND NOT EXISTS (SELECT FROM {schema}.kept_key k WHERE k.job = j.id)
             ORDER BY j.defined_at LIMIT at_most FOR UPDATE SKIP LOCKED) l;
    -- Asked again under the locks: from here on nobody can ask for a run of them.
    SELECT array_agg(g.id) INTO found_ FROM unnest(found_) AS g (id)
     WHERE NOT EXISTS (SELECT FROM {schema}.run r WHERE r.job = g.id);
    IF found_ IS NULL THEN RETURN; END IF;
    DELETE FROM {schema}.job_change c
     USING (SELECT o.id FROM {schema}.job_change o WHERE o.job = ANY (found_) LIMIT at_most * 10) d WHERE c.id = d.id;
    SELECT array_agg(g.id) INTO gone FROM unnest(found_) AS g (id)
     WHERE NOT EXISTS (SELECT FROM {schema}.job_change c WHERE c.job = g.id);
    forgotten := coalesce(cardinality(gone), 0);
    more := cardinality(found_) = at_most OR forgotten < cardinality(found_);
    IF forgotten = 0 THEN RETURN; END IF;
    UPDATE {schema}.application a
       SET kept_since = greatest(a.kept_since, before),
           generation = greatest(a.generation, (SELECT max(j.generation) FROM {schema}.job j WHERE j.id = ANY (gone)))
     WHERE a.id = app;
    DELETE FROM {schema}.job j WHERE j.id = ANY (gone);
END $$;

CREATE FUNCTION {schema}.cancel_run(of_run bigint, said text) RETURNS SETOF {schema}.run
LANGUAGE plpgsql ROWS 1 SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    r {schema}.run%ROWTYPE;
BEGIN
    PERFORM 1 FROM {schema}.job j WHERE j.id = (SELECT x.job FROM {schema}.run x WHERE x.id = of_run) FOR UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    FOR pass IN 1..20 LOOP
        SELECT * INTO r FROM {schema}.run x WHERE x.id = of_run FOR NO KEY UPDATE SKIP LOCKED;
        EXIT WHEN FOUND;
        -- Only a claim can have locked one that has not begun. It passes by our job, waits for nothing and lets go: the update below waits for it.
        SELECT * INTO r FROM {schema}.run x WHERE x.id = of_run AND x.state <> 'running';
        EXIT WHEN FOUND;
        PERFORM pg_sleep(0.005);   -- a roll call lets go at once; its own body does not, and is about to complete it
    END LOOP;
    IF r.state IN ('pending', 'waiting') THEN
        UPDATE {schema}.run x SET state = 'cancelled', reason = said, finished_at = clock_timestamp() WHERE x.id = of_run;
        PERFORM {schema}.wake(r.application);
    ELSIF r.state = 'running' THEN
        UPDATE {schema}.run x SET asked_to_end = said WHERE x.id = of_run AND x.asked_to_end = '';
        PERFORM {schema}.wake(r.application);
    END IF;
    RETURN QUERY SELECT * FROM {schema}.run x WHERE x.id = of_run;
END $$;
