-- What nodes do, many thousand times a second: claim and finish; and what they do about the dead. For the settings see 004_planning.sql.
--
-- Counts stop at what an int can hold, so that a senseless one in a single row cannot make a statement about many fail.

-- How many runs of a job have a place: they began and are not final.
CREATE FUNCTION {schema}.began(of_job bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT count(*) FROM {schema}.run r WHERE r.job = of_job AND r.attempt > 0 AND r.state <= 'running'
$$;

-- WAITING runs of jobs that have places become PENDING, oldest first. What waited is never missed.
CREATE FUNCTION {schema}.end_waits(app int, strangers text[], served text[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
DECLARE
    found_jobs bigint[];
    locked     bigint[];
BEGIN
    WITH RECURSIVE waits AS (   -- from job to job, however many runs wait
        (SELECT r.job FROM {schema}.run r WHERE r.application = app AND r.state = 'waiting' ORDER BY r.job LIMIT 1)
        UNION ALL
        SELECT (SELECT r.job FROM {schema}.run r WHERE r.application = app AND r.state = 'waiting' AND r.job > w.job ORDER BY r.job LIMIT 1)
          FROM waits w WHERE w.job IS NOT NULL
    )
    SELECT array_agg(w.job) INTO found_jobs FROM waits w;
    SELECT array_agg(l.id) INTO locked
      FROM (SELECT j.id FROM {schema}.job j
             WHERE j.id = ANY (found_jobs) AND j.state = 'active' AND (served IS NULL OR j.queue = ANY (served)) AND j.function <> ALL (strangers)
               AND (j.max_running IS NULL OR {schema}.began(j.id) < j.max_running)   -- worth a lock; counted again under it
               FOR NO KEY UPDATE SKIP LOCKED) l;
    IF locked IS NULL THEN RETURN; END IF;
    UPDATE {schema}.run r SET state = 'pending', expires_at = NULL
      FROM unnest(locked) AS l (id) JOIN {schema}.job j ON j.id = l.id
           CROSS JOIN LATERAL (SELECT w.id FROM {schema}.run w WHERE w.application = app AND w.job = l.id AND w.state = 'waiting'
                                ORDER BY w.due_at, w.id
                                LIMIT CASE WHEN j.max_running IS NOT NULL THEN greatest(j.max_running - {schema}.began(l.id), 0) END) o
     WHERE r.id = o.id;
END $$;

-- Candidates that found no place wait or are skipped, as their jobs have it. Their jobs are locked. Under `replace` the RUNNING ones are
-- asked to end, unless a newer due time begins just now: then there is nothing to wait for.
CREATE FUNCTION {schema}.hold_back(app int, candidates bigint[], claimed bigint[], now_ timestamptz) RETURNS void
LANGUAGE plpgsql
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
    UPDATE {schema}.run r SET state = 'skipped', reason = 'superseded', finished_at = now_
      FROM unnest(newest_only) AS n (job)
     WHERE r.application = app AND r.job = n.job AND r.state = 'waiting' AND r.kind = 'due'
       AND EXISTS (SELECT FROM {schema}.run o
                    WHERE o.application = app AND o.job = n.job AND o.state = 'waiting' AND o.kind = 'due'
                      AND (o.scheduled_for, o.id) > (r.scheduled_for, r.id));
    UPDATE {schema}.run r SET asked_to_end = 'replaced'
     WHERE r.id IN (SELECT o.id FROM unnest(newest_only) AS n (job)
                      JOIN {schema}.job j ON j.id = n.job JOIN {schema}.run o ON o.job = n.job
                     WHERE j.overlap = 'replace' AND o.state = 'running' AND o.attempt > 0 AND o.asked_to_end = '' AND o.id <> ALL (claimed)
                       FOR NO KEY UPDATE OF o SKIP LOCKED);
END $$;

-- What claims do not bring with every run.
CREATE FUNCTION {schema}.jobs_by_id(ids bigint[]) RETURNS SETOF {schema}.job
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
BEGIN
    RETURN QUERY SELECT j.* FROM {schema}.job j WHERE j.id = ANY (ids);
END $$;

CREATE FUNCTION {schema}.claim_runs(
    claimer uuid, of_application text, new_token text, at_most int, strangers text[], served text[], as_of float8,
    OUT alive boolean, OUT at float8, OUT next_at float8, OUT more boolean, OUT missed boolean,
    OUT ids bigint[], OUT jobs bigint[], OUT generations bigint[], OUT keys text[], OUT kinds text[],
    OUT scheduled float8[], OUT ready float8[], OUT attempts int[], OUT failed int[], OUT arguments text[]
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
DECLARE
    app         int;
    name_       text;
    now_        timestamptz;
    when_       timestamptz;   -- by which it is decided what is due and what is missed
    found_ids   bigint[];   -- candidates, oldest first
    found_jobs  bigint[];
    ranks       bigint[];   -- each one's place in the queue of its job, those between attempts aside
    different   bigint;     -- how many jobs
    locked      bigint[];
    free        bigint[];
BEGIN
    more := false;
    missed := false;
    -- Beats pass beside this lock; a declaration of our own death does not.
    SELECT n.label INTO name_ FROM {schema}.node n WHERE n.id = claimer AND n.state = 'alive' FOR KEY SHARE;
    alive := FOUND;
    now_ := clock_timestamp();
    when_ := coalesce(to_timestamp(as_of), now_);   -- a variable, so that it can bound a scan
    at := date_part('epoch', now_);
    SELECT a.id INTO app FROM {schema}.application a WHERE a.name = of_application;
    IF NOT alive OR app IS NULL THEN RETURN; END IF;

    IF EXISTS (SELECT FROM {schema}.run r WHERE r.application = app AND r.state = 'waiting') THEN
        PERFORM {schema}.end_waits(app, strangers, served);
    END IF;
    -- Locking the runs as they are found gives nodes that claim at the same time different ones.
    SELECT array_agg(c.id), array_agg(c.job) INTO found_ids, found_jobs
      FROM (SELECT r.id, r.job
              FROM {schema}.run r
             WHERE r.application = app AND r.state = 'pending' AND r.due_at <= when_ AND (r.expires_at IS NULL OR r.expires_at > when_)
               -- Not a join: that could begin with the jobs.
               AND (SELECT j.state = 'active' AND (served IS NULL OR j.queue = ANY (served)) AND j.function <> ALL (strangers)
                      FROM {schema}.job j WHERE j.id = r.job)
             ORDER BY r.due_at, r.id LIMIT at_most
               FOR NO KEY UPDATE SKIP LOCKED) c;
    more := coalesce(cardinality(found_ids), 0) >= at_most;
    -- Not together with the arrays: PostgreSQL would sort all of it by job to count (16 and newer), and they would not be in order.
    different := (SELECT count(DISTINCT f.job) FROM unnest(found_jobs) AS f (job));

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

    SELECT date_part('epoch', r.due_at) INTO next_at
      FROM {schema}.run r WHERE r.application = app AND r.state = 'pending' AND r.due_at > when_ ORDER BY r.due_at, r.id LIMIT 1;
    PERFORM 1 FROM {schema}.run r
      WHERE r.application = app AND r.state = 'pending' AND r.expires_at <= when_
        AND (SELECT j.state = 'active' AND j.function <> ALL (strangers) FROM {schema}.job j WHERE j.id = r.job)
      ORDER BY r.expires_at LIMIT 1;   -- sorted, so that the index of what expires is the one to ask
    missed := FOUND;
END $$;

-- Three NULLs say the usual thing: all accepted, all as was said, nobody waits.
CREATE FUNCTION {schema}.finish_runs(
    ids bigint[], tokens text[], states text[], reasons text[], again float8[], started float8[], finished float8[],
    log_runs bigint[], log_lines text[],
    OUT accepted boolean[], OUT became text[], OUT wakes boolean[]
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
DECLARE
    now_    timestamptz := clock_timestamp();
    returns boolean := 'pending' = ANY (states);
    done    bigint[];
    all_    boolean;
    apps    int[];
BEGIN
    IF returns THEN   -- a removal must not miss what becomes PENDING
        PERFORM 1 FROM {schema}.job j
          WHERE j.id = ANY (ARRAY(SELECT r.job FROM unnest(ids, states) AS x (id, state) JOIN {schema}.run r ON r.id = x.id
                                   WHERE x.state = 'pending'))
          ORDER BY j.id FOR KEY SHARE;
        now_ := clock_timestamp();
        WITH ended AS (
            UPDATE {schema}.run r
               SET state = x.becomes, token = NULL, asked_to_end = '',
                   attempt = greatest(r.attempt, 1) - CASE WHEN x.state = 'pending' AND x.again IS NULL THEN 1 ELSE 0 END,
                   failures = least(r.failures, 2147483646) + CASE WHEN x.state = 'failed' OR x.again IS NOT NULL THEN 1 ELSE 0 END,
                   reason = CASE WHEN x.becomes = 'cancelled'
                                 THEN coalesce(CASE WHEN x.state = 'cancelled' THEN nullif(x.reason, '') END, nullif(r.asked_to_end, ''),
                                               CASE WHEN x.state = 'pending' THEN 'removed' ELSE '' END)
                                 WHEN x.becomes = 'skipped' THEN 'paused'
                                 WHEN x.state = 'pending' AND x.again IS NULL THEN '' ELSE coalesce(x.reason, '') END,
                   due_at = CASE WHEN x.again IS NULL OR x.becomes <> 'pending' THEN r.due_at
                                 ELSE coalesce(to_timestamp(x.finished), now_) + make_interval(secs => x.again) END,
                   expires_at = CASE WHEN x.becomes <> 'pending' OR r.expires_at IS NULL THEN r.expires_at
                                     WHEN x.again IS NULL THEN greatest(r.expires_at, now_ + make_interval(secs => x.on_time)) END,
                   label = CASE WHEN x.state = 'pending' AND x.again IS NULL AND r.attempt <= 1 THEN '' ELSE r.label END,   -- it never began
                   claimed_at = CASE WHEN x.state = 'pending' AND x.again IS NULL AND r.attempt <= 1 THEN NULL ELSE r.claimed_at END,
                   started_at = to_timestamp(x.started),
                   finished_at = CASE WHEN x.becomes > 'running' THEN coalesce(to_timestamp(x.finished), now_) END
              FROM (SELECT e.*, j.on_time, l.id AS run,
                           CASE WHEN e.state <> 'pending' THEN e.state
                                WHEN l.asked_to_end <> '' THEN 'cancelled'
                                -- Never begun: as if the pause had found it unclaimed.
                                WHEN j.state = 'paused' AND e.again IS NULL AND e.started IS NULL AND l.kind = 'due' AND l.attempt <= 1 THEN 'skipped'
                                WHEN j.state <> 'removed' THEN 'pending'
                                WHEN e.again IS NULL THEN 'cancelled'
                                ELSE 'failed' END::{schema}.run_state AS becomes
                      FROM unnest(ids, tokens, states, reasons, again, started, finished)
                           AS e (id, token, state, reason, again, started, finished)
                      JOIN LATERAL (SELECT o.* FROM {schema}.run o WHERE o.id = e.id AND o.token = e.token FOR NO KEY UPDATE) l ON true
                      JOIN {schema}.job j ON j.id = l.job OFFSET 0) x
             WHERE r.id = x.run
            RETURNING r.id, r.application
        )
        SELECT array_agg(e.id), array_agg(DISTINCT e.application) INTO done, apps FROM ended e;
    ELSE
        WITH ended AS (
            UPDATE {schema}.run r   -- found by id and token: a test of `state` would call for the wrong index
               SET state = x.state::{schema}.run_state, token = NULL, asked_to_end = '',
                   failures = least(r.failures, 2147483646) + CASE WHEN x.state = 'failed' THEN 1 ELSE 0 END,
                   reason = CASE WHEN x.state = 'cancelled' THEN coalesce(nullif(x.reason, ''), r.asked_to_end) ELSE coalesce(x.reason, '') END,
                   started_at = to_timestamp(x.started), finished_at = coalesce(to_timestamp(x.finished), now_)
              FROM unnest(ids, tokens, states, reasons, started, finished) AS x (id, token, state, reason, started, finished)
             WHERE r.id = x.id AND r.token = x.token
            RETURNING r.id, r.application
        )
        SELECT array_agg(e.id), array_agg(DISTINCT e.application) INTO done, apps FROM ended e;
    END IF;
    all_ := coalesce(cardinality(done), 0) = cardinality(ids);
    IF log_runs IS NOT NULL THEN
        INSERT INTO {schema}.run_log (run, line)
        SELECT l.run, l.line FROM unnest(log_runs, log_lines) WITH ORDINALITY AS l (run, line, place) WHERE l.run = ANY (done) ORDER BY l.place;
    END IF;
    IF all_ AND NOT returns AND NOT EXISTS (SELECT FROM {schema}.run w WHERE w.application = ANY (apps) AND w.state = 'waiting') THEN
        RETURN;
    END IF;

    SELECT array_agg(all_ OR x.id = ANY (coalesce(done, '{}')) ORDER BY x.place), array_agg(coalesce(r.state::text, 'lost') ORDER BY x.place),
           array_agg((all_ OR x.id = ANY (coalesce(done, '{}'))) AND j.state = 'active'
                     AND EXISTS (SELECT FROM {schema}.run w WHERE w.application = r.application AND w.job = r.job AND w.state = 'waiting')
                     AND (j.max_running IS NULL OR {schema}.began(j.id) < j.max_running) ORDER BY x.place)
      INTO accepted, became, wakes
      FROM unnest(ids) WITH ORDINALITY AS x (id, place) LEFT JOIN {schema}.run r ON r.id = x.id LEFT JOIN {schema}.job j ON j.id = r.job;
    PERFORM {schema}.wake(n.application)
       FROM (SELECT DISTINCT r.application FROM unnest(ids, became, wakes, accepted) AS x (id, became, wakes, accepted)
               JOIN {schema}.run r ON r.id = x.id WHERE x.accepted AND (x.wakes OR x.became = 'pending')) n;
END $$;

-- Runs that this node was given and does not have. One that is locked is in its body's hands, after all.
CREATE FUNCTION {schema}.put_back_runs(ids bigint[], tokens text[]) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
DECLARE
    ours   bigint[];
    shown  text[];
BEGIN
    SELECT array_agg(l.id), array_agg(l.token) INTO ours, shown
      FROM (SELECT r.id, r.token FROM unnest(ids, tokens) AS x (id, token) JOIN {schema}.run r ON r.id = x.id AND r.token = x.token
               FOR NO KEY UPDATE OF r SKIP LOCKED) l;
    IF ours IS NULL THEN RETURN 0; END IF;
    PERFORM {schema}.finish_runs(ours, shown, array_fill('pending'::text, ARRAY[cardinality(ours)]), NULL, NULL, NULL, NULL, NULL, NULL);
    RETURN cardinality(ours);
END $$;

CREATE FUNCTION {schema}.roll_call(caller uuid, of_application text,
    OUT at float8, OUT held_ids bigint[], OUT held_tokens text[], OUT held_asked text[], OUT held_must_answer boolean[], OUT lost_ids bigint[])
LANGUAGE plpgsql
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
    WITH RECURSIVE holders AS (   -- from node to node, however many runs they have
        (SELECT r.node FROM {schema}.run r WHERE r.application = app AND r.state = 'running' ORDER BY r.node LIMIT 1)
        UNION ALL
        SELECT (SELECT r.node FROM {schema}.run r WHERE r.application = app AND r.state = 'running' AND r.node > h.node ORDER BY r.node LIMIT 1)
          FROM holders h WHERE h.node IS NOT NULL
    )
    SELECT array_agg(h.node) INTO gone
      FROM holders h
     WHERE h.node IS NOT NULL AND NOT EXISTS (SELECT FROM {schema}.node n WHERE n.id = h.node AND n.state = 'alive');
    IF gone IS NOT NULL THEN
        SELECT array_agg(l.id) INTO jobs
          FROM (SELECT j.id FROM {schema}.job j
                 WHERE j.id = ANY (ARRAY(SELECT r.job FROM {schema}.run r
                                          WHERE r.application = app AND r.state = 'running' AND r.node = ANY (gone)))
                   FOR KEY SHARE SKIP LOCKED) l;
        WITH taken AS MATERIALIZED (
            SELECT r.id FROM {schema}.run r
             WHERE r.application = app AND r.state = 'running' AND r.node = ANY (gone) AND r.job = ANY (jobs)
               FOR NO KEY UPDATE SKIP LOCKED
        ), ended AS (
            UPDATE {schema}.run r
               SET state = x.becomes, token = NULL, asked_to_end = '', losses = least(r.losses, 2147483646) + 1,
                   reason = coalesce(nullif(r.asked_to_end, ''), 'its node died'),
                   expires_at = CASE WHEN x.becomes = 'pending' THEN NULL ELSE r.expires_at END,
                   finished_at = CASE WHEN x.becomes > 'running' THEN now_ END
              FROM (SELECT t.id,
                           CASE WHEN o.asked_to_end <> '' THEN 'cancelled'
                                WHEN j.state = 'removed' OR j.on_lost = 'fail' OR o.losses >= j.max_lost - 1 THEN 'lost'
                                ELSE 'pending' END::{schema}.run_state AS becomes
                      FROM taken t JOIN {schema}.run o ON o.id = t.id JOIN {schema}.job j ON j.id = o.job) x
             WHERE r.id = x.id
            RETURNING r.id
        )
        SELECT array_agg(e.id) INTO lost_ids FROM ended e;
        IF lost_ids IS NOT NULL THEN
            PERFORM {schema}.wake(app);
        END IF;
    END IF;
    SELECT array_agg(r.id), array_agg(r.token), array_agg(r.asked_to_end),
           array_agg(r.started_at IS NULL AND (SELECT j.state <> 'active' FROM {schema}.job j WHERE j.id = r.job))
      INTO held_ids, held_tokens, held_asked, held_must_answer
      FROM {schema}.run r WHERE r.application = app AND r.state = 'running' AND r.node = caller;
END $$;

-- What a node answers for runs of jobs that were paused or removed: their bodies have been called. One that is locked is about to end.
CREATE FUNCTION {schema}.note_begun(ids bigint[], tokens text[], started float8[]) RETURNS void
LANGUAGE plpgsql
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
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
BEGIN
    RETURN QUERY
    SELECT DISTINCT n.label, n.ttl::float8
      FROM {schema}.run r JOIN {schema}.node n ON n.id = r.node
     WHERE r.job = of_job AND r.attempt > 0 AND r.state <= 'running' AND r.state = 'running' AND r.started_at IS NULL
       AND r.generation < of_generation AND n.state = 'alive'
       AND EXISTS (SELECT FROM {schema}.job j WHERE j.id = of_job AND j.state <> 'active')
     ORDER BY 1, 2;
END $$;

CREATE FUNCTION {schema}.prune_runs(of_application text, old float8, keep int, at_most int, beyond bigint, in_jobs int,
    OUT removed bigint, OUT up_to bigint, OUT more boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET random_page_cost = 0.01 SET cpu_tuple_cost = 1 AS $$
DECLARE
    before  timestamptz := to_timestamp(old);
    doomed  bigint[];
    jobs    bigint[];
    page    bigint[];
BEGIN
    removed := 0;
    SELECT array_agg(p.id ORDER BY p.id) INTO page
      FROM (SELECT j.id FROM {schema}.application a JOIN {schema}.job j ON j.application = a.id
             WHERE a.name = of_application AND j.id > beyond ORDER BY j.id LIMIT in_jobs) p;
    IF cardinality(page) = in_jobs THEN up_to := page[in_jobs]; END IF;
    SELECT array_agg(d.id), array_agg(DISTINCT d.job) INTO doomed, jobs
      FROM (SELECT r.id, r.job
              FROM unnest(page) AS j (id)
              CROSS JOIN LATERAL (SELECT least(before, min(o.scheduled_for)) AS instant
                                    FROM {schema}.run o WHERE o.job = j.id AND o.state <= 'running') bound
              CROSS JOIN LATERAL (SELECT f.id, f.job FROM {schema}.run f
                                   WHERE f.job = j.id AND f.state > 'running'
                                     AND f.scheduled_for < bound.instant AND coalesce(f.until, f.scheduled_for) < bound.instant
                                     AND f.id <> ALL (ARRAY(SELECT k.id FROM {schema}.run k WHERE k.job = j.id AND k.state > 'running'
                                                             ORDER BY k.scheduled_for DESC, k.id DESC LIMIT keep))
                                   ORDER BY f.scheduled_for LIMIT at_most) r
             LIMIT at_most) d;
    more := coalesce(cardinality(doomed), 0) >= at_most;   -- of those that are removed below, others may have some locked
    SELECT array_agg(l.id) INTO jobs
      FROM (SELECT j.id FROM {schema}.job j WHERE j.id = ANY (jobs) FOR NO KEY UPDATE SKIP LOCKED) l;
    IF jobs IS NULL THEN RETURN; END IF;
    WITH taken AS MATERIALIZED (   -- a backfill may have opened one again
        SELECT r.id FROM unnest(doomed) AS d (id) JOIN {schema}.run r ON r.id = d.id
         WHERE r.job = ANY (jobs) AND r.state > 'running' FOR UPDATE OF r SKIP LOCKED
    ), gone AS (
        DELETE FROM {schema}.run r USING taken t WHERE r.id = t.id RETURNING r.id, r.job, coalesce(r.until, r.scheduled_for) AS last
    ), lines AS (
        DELETE FROM {schema}.run_log l USING gone g WHERE l.run = g.id
    ), moved AS (
        UPDATE {schema}.job j SET kept_since = greatest(j.kept_since, g.last + interval '1 microsecond')
          FROM (SELECT x.job, max(x.last) AS last FROM gone x GROUP BY x.job) g WHERE j.id = g.job
    )
    SELECT count(*) INTO removed FROM gone;
END $$;
