-- Statements about runs.

-- name: claim
-- Claim due runs.
SELECT lanes, others, server, seen::text, due_from, expires_from,
       alive, at, next_at, more, missed,
       owing, ids, jobs, generations, keys, kinds, scheduled, ready, attempts, failed, arguments
  FROM {schema}.claim_runs(%(node)s::uuid, %(application)s::text, %(token)s::text, %(limit)s::int, %(functions)s,
                           %(queues)s, %(as_of)s, %(lanes)s::int[], %(others)s::int[], %(server)s,
                           %(seen)s::text::pg_snapshot, %(due_from)s, %(expires_from)s)

-- name: finish
-- End attempts.
SELECT accepted, became, wakes
  FROM {schema}.finish_runs(%(ids)s, %(tokens)s, %(states)s, %(reasons)s, %(again)s, %(started)s, %(finished)s,
                            %(waits)s, %(results)s)

-- name: put_back
-- Put back runs that this node was given but does not have.
SELECT {schema}.put_back_runs(%(ids)s, %(tokens)s)

-- name: reconcile
-- Take back the runs of dead nodes, and list the runs that this node has.
SELECT at, held_ids, held_tokens, held_asked, held_must_answer, lost_ids, owed
  FROM {schema}.reconcile(%(node)s::uuid, %(application)s::text, %(stops)s)

-- name: lost
-- What became of the runs that a reconciliation took back.
SELECT r.id, j.name, r.key, date_part('epoch', r.scheduled_for), r.attempt, r.node::text, r.state::text, r.reason,
       r.label
  FROM {schema}.run r JOIN {schema}.job j ON j.id = r.job WHERE r.id = ANY (%(ids)s::bigint[])

-- name: follow_up
-- Give followers the runs that they are owed.
SELECT paid, begins, more, up_to
  FROM {schema}.follow_up(%(application)s, %(limit)s::int, %(beyond)s::bigint, %(as_of)s)

-- name: owed
-- Final runs whose followers are owed runs.
SELECT j.name, r.key, date_part('epoch', r.scheduled_for), date_part('epoch', r.finished_at)
  FROM {schema}.application a JOIN {schema}.run r ON r.application = a.id AND r.owes AND r.state > 'running'
  JOIN {schema}.job j ON j.id = r.job
 WHERE a.name = %(application)s ORDER BY coalesce(r.finished_at, r.scheduled_for), r.id LIMIT %(limit)s

-- name: parents
-- The runs of these jobs with these keys, which others follow.
SELECT j.name, r.key, r.state::text, r.result
  FROM unnest(%(names)s::text[], %(keys)s::text[]) AS n (name, key)
  JOIN {schema}.application a ON a.name = %(application)s
  JOIN {schema}.job j ON j.application = a.id AND j.name = n.name
  JOIN {schema}.run r ON r.job = j.id AND r.key = n.key

-- name: note_begun
-- Report that the bodies of these runs have begun.
SELECT {schema}.note_begun(%(ids)s, %(tokens)s, %(started)s)

-- name: unbegun
-- The live nodes that may still begin runs from before a change.
SELECT label, ttl FROM {schema}.unbegun(%(job)s, %(generation)s)

-- name: settle
-- Decide missed runs of one job.
SELECT {schema}.settle_runs(%(job)s, %(generation)s, %(make_up)s, %(skip)s, %(reason)s)

-- name: request_runs
-- Request runs.
SELECT {run}, r.digest
  FROM (SELECT (a.run).*, a.digest, a.place
          FROM {schema}.request_runs(%(requests)s) WITH ORDINALITY AS a (run, digest, place)) r
  LEFT JOIN {schema}.job j ON j.id OPERATOR(pg_catalog.=) r.job
 ORDER BY r.place

-- name: traceparents
-- The spans that requested runs.
SELECT r.id, r.traceparent FROM {schema}.run r WHERE r.id = ANY (%(runs)s::bigint[]) AND r.traceparent IS NOT NULL

-- name: retry
-- Retry runs.
SELECT {run}
  FROM {schema}.retry_runs(%(runs)s::bigint[], %(by)s, %(action)s::jsonb, nullif(%(traceparent)s, '')) r
  JOIN {schema}.job j ON j.id = r.job

-- name: cancel
-- Cancel runs, and request the end of RUNNING ones.
SELECT {run}
  FROM {schema}.cancel_runs(%(runs)s::bigint[], %(said)s, %(action)s::jsonb) r JOIN {schema}.job j ON j.id = r.job

-- name: run
-- One run by id.
SELECT {run}
  FROM {schema}.run r JOIN {schema}.job j ON j.id = r.job JOIN {schema}.application a ON a.id = j.application
 WHERE r.id = %(run)s AND a.name = %(application)s

-- name: run_by_key
-- The run of one job that has this key.
SELECT {run}
  FROM {schema}.application a JOIN {schema}.job j ON j.application = a.id JOIN {schema}.run r ON r.job = j.id
 WHERE a.name = %(application)s AND j.name = %(job)s AND r.key = %(key)s

-- name: runs_by_key
-- The runs of all jobs that have this key.
SELECT {run}
  FROM (SELECT x.* FROM {schema}.job x JOIN {schema}.application a ON a.id = x.application
         WHERE a.name = %(application)s) j
 CROSS JOIN LATERAL (SELECT f.* FROM {schema}.run f WHERE f.job = j.id AND f.key = %(key)s) r
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT %(limit)s

-- name: runs_in_slot
-- The runs that have a slot.
SELECT {run}
  FROM {schema}.application a JOIN {schema}.run r ON r.application = a.id JOIN {schema}.job j ON j.id = r.job
 WHERE a.name = %(application)s AND r.slot = %(slot)s AND r.attempt = 0 AND r.state <= 'waiting'

-- name: coming
-- The runs that were requested for a time to come, the nearest first.
SELECT {run}
  FROM {schema}.application a JOIN {schema}.job j ON j.application = a.id
 CROSS JOIN LATERAL (SELECT f.* FROM {schema}.run f
                      WHERE f.job = j.id AND f.state <= 'running' AND f.attempt - f.reopened = 0
                        AND f.state = 'pending' AND f.kind <> 'due' AND f.due_at > clock_timestamp()) r
 WHERE a.name = %(application)s
 ORDER BY r.due_at, r.id LIMIT %(limit)s

-- name: runs_by_id
-- Runs by id, oldest first.
SELECT {run} FROM {schema}.run r JOIN {schema}.job j ON j.id = r.job
 WHERE r.id = ANY (%(ids)s::bigint[]) ORDER BY r.scheduled_for, r.id

-- name: runs_of_job
-- Runs of one job. Final and open runs have an index each; a branch whose states are not wanted is not read.
SELECT {run}
  FROM (SELECT x.* FROM {schema}.job x JOIN {schema}.application a ON a.id = x.application
         WHERE a.name = %(application)s AND x.name = %(job)s) j
 CROSS JOIN LATERAL (
       (SELECT f.* FROM {schema}.run f
         WHERE cardinality(%(finals)s::text[]) > 0 AND f.job = j.id AND f.state > 'running'
           AND f.state = ANY (%(finals)s::text[]::{schema}.run_state[]) AND {span}
         ORDER BY f.scheduled_for {order}, f.id {order} LIMIT %(limit)s)
       UNION ALL
       (SELECT f.* FROM {schema}.run f
         WHERE f.job = j.id AND f.state <= 'running' AND f.state = ANY (%(states)s::text[]::{schema}.run_state[])
           AND {span})
       UNION ALL
       (SELECT f.* FROM {schema}.run f
         WHERE f.job = j.id AND f.state = ANY (%(states)s::text[]::{schema}.run_state[]) AND {reaching})) r
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT %(limit)s

-- name: strips
-- The last runs of each of these jobs, in short.
SELECT x.job, r.id, r.state::text, date_part('epoch', r.due_at), date_part('epoch', r.started_at),
       date_part('epoch', r.finished_at)
  FROM unnest(%(jobs)s::bigint[]) x (job)
 CROSS JOIN LATERAL (
       SELECT u.* FROM (
              (SELECT f.* FROM {schema}.run f
                WHERE f.job = x.job AND f.state > 'running' AND f.scheduled_for < to_timestamp(%(before)s::float8)
                ORDER BY f.scheduled_for DESC, f.id DESC LIMIT %(limit)s)
              UNION ALL
              (SELECT f.* FROM {schema}.run f
                WHERE f.job = x.job AND f.state <= 'running' AND f.scheduled_for < to_timestamp(%(before)s::float8))) u
        ORDER BY u.scheduled_for DESC, u.id DESC LIMIT %(limit)s) r
 ORDER BY x.job, r.scheduled_for DESC, r.id DESC

-- name: runs_of_application
-- Runs of all jobs. State by state, the first ones of each in order, along the index.
SELECT {run}
  FROM (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) a
 CROSS JOIN LATERAL (
       (SELECT f.* FROM unnest(%(finals)s::text[]::{schema}.run_state[]) s (state)
         CROSS JOIN LATERAL (SELECT f.* FROM {schema}.run f
                              WHERE f.application = a.id AND f.state = s.state AND f.state > 'running' AND {span}
                              ORDER BY f.scheduled_for {order}, f.id {order} LIMIT %(limit)s) f)
       UNION ALL
       (SELECT f.* FROM {schema}.job x
         CROSS JOIN LATERAL (SELECT f.* FROM {schema}.run f
                              WHERE f.job = x.id AND f.state <= 'running' AND f.state = 'pending' AND {span}) f
         WHERE 'pending' = ANY (%(states)s::text[]) AND x.application = a.id)
       UNION ALL
       (SELECT f.* FROM {schema}.run f
         WHERE 'waiting' = ANY (%(states)s::text[]) AND f.application = a.id AND f.state = 'waiting' AND {span})
       UNION ALL
       (SELECT f.* FROM {schema}.run f
         WHERE 'running' = ANY (%(states)s::text[]) AND f.application = a.id AND f.state = 'running' AND {span})
       UNION ALL
       (SELECT f.* FROM {schema}.job x
         CROSS JOIN LATERAL (SELECT f.* FROM {schema}.run f
                              WHERE f.job = x.id AND f.state = ANY (%(states)s::text[]::{schema}.run_state[])
                                AND {reaching}) f
         WHERE %(since)s::float8 IS NOT NULL AND x.application = a.id)) r
  JOIN {schema}.job j ON j.id = r.job
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT %(limit)s

-- name: began
-- The last runs of one job that began.
SELECT {run}
  FROM (SELECT x.* FROM {schema}.job x JOIN {schema}.application a ON a.id = x.application
         WHERE a.name = %(application)s AND x.name = %(name)s) j
 CROSS JOIN LATERAL (
       (SELECT f.* FROM {schema}.run f WHERE f.job = j.id AND f.state > 'running' AND f.attempt > 0
         ORDER BY f.scheduled_for DESC, f.id DESC LIMIT %(last)s)
       UNION ALL
       (SELECT f.* FROM {schema}.run f WHERE f.job = j.id AND f.state <= 'running' AND f.attempt > 0)) r
 ORDER BY r.scheduled_for DESC, r.id DESC LIMIT %(last)s

-- name: past
-- For an audit: for each job the plain due times, in microseconds, by how they ended; and the ids of the other runs.
SELECT x.id, p.succeeded, p.failed, p.lost,
       p.others || ARRAY(SELECT f.id FROM {schema}.run f WHERE f.job = x.id AND f.state <= 'running' AND {span})
                || ARRAY(SELECT f.id FROM {schema}.run f WHERE f.job = x.id AND {reaching})
  FROM unnest(%(jobs)s::bigint[]) x (id)
 CROSS JOIN LATERAL (
       SELECT string_agg(f.at, ',') FILTER (WHERE f.plain AND f.state = 'succeeded') AS succeeded,
              string_agg(f.at, ',') FILTER (WHERE f.plain AND f.state = 'failed') AS failed,
              string_agg(f.at, ',') FILTER (WHERE f.plain AND f.state = 'lost') AS lost,
              array_agg(f.id) FILTER (WHERE NOT f.plain) AS others
         FROM (SELECT f.id, f.state, (date_part('epoch', f.scheduled_for) * 1000000)::bigint::text AS at,
                      f.kind = 'due' AND f.count = 1 AND f.until IS NULL AND f.state <= 'lost' AS plain
                 FROM {schema}.run f WHERE f.job = x.id AND f.state > 'running' AND {span}) f) p

-- name: figures
-- Figures of each job's last runs that began, as `stats_of` computes them. The aggregates rely on the subquery's order.
SELECT j.name, s.runs, s.failed, s.took, s.late, s.states[1]::text, date_part('epoch', s.ends[1])
  FROM {schema}.application a JOIN {schema}.job j ON j.application = a.id
 CROSS JOIN LATERAL (
       SELECT count(*) AS runs,
              count(*) FILTER (WHERE r.state IN ('failed', 'lost')) AS failed,
              percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (
                  ORDER BY date_part('epoch', r.finished_at) - date_part('epoch', r.started_at)) AS took,
              percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (
                  ORDER BY CASE WHEN r.state NOT IN ('pending', 'waiting')
                                THEN date_part('epoch', r.started_at) - date_part('epoch', r.due_at) END) AS late,
              array_agg(r.state) FILTER (WHERE r.state > 'running') AS states,
              array_agg(r.finished_at) FILTER (WHERE r.state > 'running') AS ends
         FROM (SELECT f.id, f.state, f.scheduled_for, f.due_at, f.started_at, f.finished_at
                 FROM ((SELECT f.* FROM {schema}.run f WHERE f.job = j.id AND f.state > 'running' AND f.attempt > 0
                         ORDER BY f.scheduled_for DESC, f.id DESC LIMIT %(last)s)
                       UNION ALL
                       (SELECT f.* FROM {schema}.run f
                         WHERE f.job = j.id AND f.state <= 'running' AND f.attempt > 0)) f
                ORDER BY f.scheduled_for DESC, f.id DESC LIMIT %(last)s) r) s
 WHERE a.name = %(application)s

-- name: jobs_with_failures
-- The jobs that have failures among the newest of an application.
SELECT DISTINCT b.job
  FROM {schema}.application a
 CROSS JOIN unnest(ARRAY['failed', 'lost']::{schema}.run_state[]) s (state)
 CROSS JOIN LATERAL (SELECT f.job FROM {schema}.run f
                      WHERE f.application = a.id AND f.state = s.state AND f.state > 'running'
                      ORDER BY f.scheduled_for DESC LIMIT %(limit)s) b
 WHERE a.name = %(application)s

-- name: outcomes
-- How the newest run of each job ended, and how many have failed since the last one that succeeded.
WITH recent AS MATERIALIZED (
    SELECT f.job, count(*) AS runs
      FROM {schema}.application a
     CROSS JOIN unnest(ARRAY['failed', 'lost']::{schema}.run_state[]) s (state)
      JOIN {schema}.run f ON f.application = a.id AND f.state = s.state AND f.state > 'running'
                         AND f.scheduled_for >= to_timestamp(%(since)s::float8)
     WHERE a.name = %(application)s GROUP BY f.job
)
SELECT j.name, n.id, n.state::text, date_part('epoch', coalesce(n.finished_at, n.scheduled_for)),
       CASE WHEN n.state = 'succeeded' THEN '' ELSE right(n.reason, %(reason)s::int) END,
       coalesce(bad.failures, 0), date_part('epoch', bad.since), coalesce(recent.runs, 0)
  FROM {schema}.application a
  JOIN {schema}.job j ON j.application = a.id AND j.state <> 'removed'
 CROSS JOIN LATERAL (SELECT f.id, f.state, f.scheduled_for, f.finished_at, f.reason FROM {schema}.run f
                      WHERE f.job = j.id AND f.state > 'running' AND f.state IN ('succeeded', 'failed', 'lost')
                      ORDER BY f.scheduled_for DESC, f.id DESC LIMIT 1) n
  LEFT JOIN LATERAL (   -- read only for a job whose newest run did not succeed
       SELECT count(*) AS failures, min(w.at) AS since
         FROM (SELECT coalesce(f.finished_at, f.scheduled_for) AS at,
                      bool_or(f.state = 'succeeded') OVER (ORDER BY f.scheduled_for DESC, f.id DESC) AS over
                 FROM (SELECT x.id, x.state, x.scheduled_for, x.finished_at FROM {schema}.run x
                        WHERE n.state <> 'succeeded' AND x.job = j.id AND x.state > 'running'
                          AND x.state IN ('succeeded', 'failed', 'lost')
                        ORDER BY x.scheduled_for DESC, x.id DESC LIMIT %(counted)s::int) f) w
        WHERE NOT w.over) bad ON true
  LEFT JOIN recent ON recent.job = j.id
 WHERE a.name = %(application)s AND (%(jobs)s::bigint[] IS NULL OR j.id = ANY (%(jobs)s::bigint[]))
   AND (%(name)s::text IS NULL OR j.name = %(name)s::text)
 ORDER BY j.name COLLATE "C"

-- name: tally
-- Count open runs that are due, by state and node, and runs that failed or were lost since an instant, up to a limit.
SELECT t.state, t.label, t.runs
  FROM (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) a
 CROSS JOIN LATERAL (
       (SELECT 'pending' AS state, '' AS label, count(f.id) AS runs FROM {schema}.job x
         CROSS JOIN LATERAL (SELECT f.id FROM {schema}.run f
                              WHERE f.job = x.id AND f.state <= 'running' AND f.state = 'pending'
                                AND f.scheduled_for < clock_timestamp()) f
         WHERE x.application = a.id)
       UNION ALL
       (SELECT 'waiting', '', count(*) FROM {schema}.run f WHERE f.application = a.id AND f.state = 'waiting')
       UNION ALL
       (SELECT 'running', f.label, count(*) FROM {schema}.run f
         WHERE f.application = a.id AND f.state = 'running' GROUP BY f.label)
       UNION ALL
       (SELECT s.state::text, '', (SELECT count(*)
                                     FROM (SELECT FROM {schema}.run f
                                            WHERE f.application = a.id AND f.state = s.state AND f.state > 'running'
                                              AND f.scheduled_for >= to_timestamp(%(since)s::float8)
                                            LIMIT %(limit)s) x)
          FROM unnest(ARRAY['failed', 'lost']::{schema}.run_state[]) s (state))) t

-- name: open_runs
-- Count open runs that are due, by state and queue, up to a limit. Runs of jobs that are not active have no lane.
SELECT o.state, o.queue, sum(o.runs)::bigint
  FROM (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) a
 CROSS JOIN LATERAL (
       (SELECT 'pending' AS state, l.queue, count(f.id) AS runs FROM {schema}.lane l
         CROSS JOIN LATERAL (SELECT x.id FROM {schema}.run x
                              WHERE x.lane = l.id AND x.state = 'pending' AND x.lane IS NOT NULL
                                AND x.due_at <= clock_timestamp() LIMIT %(limit)s) f
         WHERE l.application = a.id GROUP BY l.queue)
       UNION ALL
       (SELECT 'waiting', j.queue, count(*)
          FROM (SELECT f.job FROM {schema}.run f WHERE f.application = a.id AND f.state = 'waiting'
                 LIMIT %(limit)s) f JOIN {schema}.job j ON j.id = f.job GROUP BY j.queue)
       UNION ALL
       (SELECT 'running', j.queue, count(*)
          FROM (SELECT f.job FROM {schema}.run f WHERE f.application = a.id AND f.state = 'running'
                 LIMIT %(limit)s) f JOIN {schema}.job j ON j.id = f.job GROUP BY j.queue)) o
 GROUP BY o.state, o.queue

-- name: last_ends
-- How the newest runs of jobs ended. A healthy job costs a look at its newest run; failures are counted only for a job
-- whose newest run did not succeed.
WITH failed AS MATERIALIZED (
    SELECT b.job, max(b.at) AS at
      FROM {schema}.application a
     CROSS JOIN unnest(ARRAY['failed', 'lost']::{schema}.run_state[]) s (state)
     CROSS JOIN LATERAL (SELECT f.job, coalesce(f.finished_at, f.scheduled_for) AS at FROM {schema}.run f
                          WHERE f.application = a.id AND f.state = s.state AND f.state > 'running'
                          ORDER BY f.scheduled_for DESC LIMIT %(failing)s) b
     WHERE a.name = %(application)s GROUP BY b.job
)
SELECT x.id, date_part('epoch', good.scheduled_for), date_part('epoch', good.finished_at),
       date_part('epoch', failed.at), coalesce(bad.failures, 0),
       date_part('epoch', newest.finished_at) - date_part('epoch', newest.started_at),
       date_part('epoch', skipped.at)
  FROM unnest(%(jobs)s::bigint[]) x (id)
  LEFT JOIN LATERAL (SELECT w.* FROM (SELECT f.* FROM {schema}.run f WHERE f.job = x.id AND f.state > 'running'
                                       ORDER BY f.scheduled_for DESC, f.id DESC LIMIT %(within)s) w
                      WHERE w.state IN ('succeeded', 'failed', 'lost') LIMIT 1) newest ON true
  LEFT JOIN LATERAL (SELECT w.* FROM (SELECT f.* FROM {schema}.run f WHERE f.job = x.id AND f.state > 'running'
                                       ORDER BY f.scheduled_for DESC, f.id DESC LIMIT %(within)s) w
                      WHERE w.state = 'succeeded' LIMIT 1) good ON true
  LEFT JOIN LATERAL (SELECT count(*) AS failures
                       FROM (SELECT f.id, f.state, f.scheduled_for FROM {schema}.run f
                              WHERE newest.state <> 'succeeded' AND f.job = x.id AND f.state > 'running'
                                AND (good.id IS NULL OR f.scheduled_for >= good.scheduled_for)
                              ORDER BY f.scheduled_for DESC, f.id DESC LIMIT %(within)s) f
                      WHERE f.state IN ('failed', 'lost')
                        AND (good.id IS NULL OR (f.scheduled_for, f.id) > (good.scheduled_for, good.id))) bad ON true
  -- Only after the newest run: what was missed before has been made up for.
  LEFT JOIN LATERAL (SELECT coalesce(f.until, f.scheduled_for) AS at
                       FROM (SELECT w.* FROM {schema}.run w
                              WHERE w.job = x.id AND w.state > 'running'
                                AND w.scheduled_for >= coalesce(newest.scheduled_for, '-infinity')
                              ORDER BY w.scheduled_for DESC, w.id DESC LIMIT %(within)s) f
                      WHERE f.state = 'skipped' AND f.reason = 'missed'
                        AND (newest.id IS NULL OR (f.scheduled_for, f.id) > (newest.scheduled_for, newest.id))
                      ORDER BY f.scheduled_for DESC, f.id DESC LIMIT 1) skipped ON true
  LEFT JOIN failed ON failed.job = x.id

-- name: durations
-- How long the last runs of jobs took.
SELECT x.id, count(d.took), percentile_cont(0.99) WITHIN GROUP (ORDER BY d.took)
  FROM unnest(%(jobs)s::bigint[]) x (id)
 CROSS JOIN LATERAL (SELECT date_part('epoch', f.finished_at) - date_part('epoch', f.started_at) AS took
                       FROM {schema}.run f WHERE f.job = x.id AND f.state > 'running' AND f.attempt > 0
                      ORDER BY f.scheduled_for DESC, f.id DESC LIMIT %(last)s) d
 GROUP BY x.id

-- name: keep_log
-- Store log lines. A line that is sent again, because the first answer was lost, is stored once.
INSERT INTO {schema}.run_log (run, attempt, place, at, line)
SELECT l.run, l.attempt, l.place, to_timestamp(l.at), l.line
  FROM unnest(%(runs)s::bigint[], %(attempts)s::bigint[], %(places)s::bigint[], %(at)s::float8[], %(lines)s::text[])
       AS l (run, attempt, place, at, line)
 WHERE EXISTS (SELECT FROM {schema}.run r WHERE r.id = l.run)
ON CONFLICT DO NOTHING

-- name: trim_log
-- Drop log lines that later ones take the room of, then store lines as `keep_log` does.
WITH trimmed AS (
    DELETE FROM {schema}.run_log l
     USING unnest(%(trimmed)s::bigint[], %(of)s::bigint[], %(first)s::bigint[], %(before)s::bigint[])
           AS t (run, attempt, first, before)
     WHERE l.run = t.run AND l.attempt = t.attempt AND l.place >= t.first AND l.place < t.before
)
INSERT INTO {schema}.run_log (run, attempt, place, at, line)
SELECT l.run, l.attempt, l.place, to_timestamp(l.at), l.line
  FROM unnest(%(runs)s::bigint[], %(attempts)s::bigint[], %(places)s::bigint[], %(at)s::float8[], %(lines)s::text[])
       AS l (run, attempt, place, at, line)
 WHERE EXISTS (SELECT FROM {schema}.run r WHERE r.id = l.run)
ON CONFLICT DO NOTHING

-- name: keep_progress
-- Store how far runs are.
INSERT INTO {schema}.run_progress AS p (run, attempt, done, total, text, at)
SELECT n.run, n.attempt, n.done, n.total, n.text, to_timestamp(n.at)
  FROM unnest(%(runs)s::bigint[], %(attempts)s::bigint[], %(done)s::float8[], %(totals)s::float8[], %(texts)s::text[],
              %(at)s::float8[]) AS n (run, attempt, done, total, text, at)
 WHERE EXISTS (SELECT FROM {schema}.run r WHERE r.id = n.run)
 ORDER BY n.run
ON CONFLICT (run) DO UPDATE SET (attempt, done, total, text, at)
                              = (excluded.attempt, excluded.done, excluded.total, excluded.text, excluded.at)
 WHERE p.attempt <= excluded.attempt

-- name: keep_results
-- Store what bodies returned whose own transactions completed their runs.
UPDATE {schema}.run r SET result = x.text
  FROM (SELECT l.id, n.text
          FROM unnest(%(runs)s::bigint[], %(attempts)s::bigint[], %(texts)s::text[]) AS n (run, attempt, text)
          JOIN LATERAL (SELECT o.id FROM {schema}.run o
                         WHERE o.id = n.run AND o.state = 'succeeded' AND o.result IS NULL
                           AND o.attempt = n.attempt
                           FOR NO KEY UPDATE SKIP LOCKED) l ON true OFFSET 0) x
 WHERE r.id = x.id

-- name: result
-- What the body of one run returned.
SELECT r.result FROM {schema}.run r WHERE r.id = %(run)s

-- name: progress
-- How far runs are.
SELECT p.run, p.attempt, p.done, p.total, p.text, date_part('epoch', p.at)
  FROM {schema}.run_progress p WHERE p.run = ANY (%(runs)s::bigint[])

-- name: log
-- The log of one run.
SELECT l.run, l.attempt, l.place, date_part('epoch', l.at), l.line
  FROM {schema}.run_log l WHERE l.run = %(run)s ORDER BY l.attempt, l.place

-- name: log_ends
-- The last log line of each of these runs.
SELECT x.run, l.attempt, l.place
  FROM unnest(%(runs)s::bigint[]) x (run)
 CROSS JOIN LATERAL (SELECT f.attempt, f.place FROM {schema}.run_log f WHERE f.run = x.run
                      ORDER BY f.run DESC, f.attempt DESC, f.place DESC LIMIT 1) l

-- name: attempts
-- The attempts of one run: the kept ones, and then the one in its row, which may be kept already.
SELECT a.number, a.label, date_part('epoch', a.claimed_at), date_part('epoch', a.started_at),
       date_part('epoch', a.finished_at), a.outcome, a.error, a.count, true
  FROM {schema}.attempt a WHERE a.run = %(run)s
UNION ALL
SELECT r.attempt, r.label, date_part('epoch', r.claimed_at), date_part('epoch', r.started_at),
       date_part('epoch', r.finished_at), coalesce(r.outcome, r.state::text), r.reason, 1, false
  FROM {schema}.run r WHERE r.id = %(run)s AND r.attempt > 0
 ORDER BY 9 DESC, 1

-- name: prune
-- Delete old runs.
SELECT removed, up_to, more
  FROM {schema}.prune_runs(%(application)s, %(before)s, %(keep)s::int, %(limit)s::int, %(beyond)s, %(jobs)s::int,
                           %(keys_before)s)
