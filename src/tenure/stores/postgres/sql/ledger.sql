-- `change`, `seen` and `ask` are also sent over the application's own connection (`conn=…`), whose search_path is not ours to set. So
-- they, and the columns of a job and a run, name the schema of each function, operator and type.

-- name: now
SELECT date_part('epoch', clock_timestamp())

-- name: functions
-- From function to function, however many jobs there are.
WITH RECURSIVE names AS (
    SELECT a.id AS app, (SELECT min(j.function) FROM {schema}.job j WHERE j.application = a.id AND j.state <> 'removed') AS name
      FROM {schema}.application a WHERE a.name = %(application)s
    UNION ALL
    SELECT n.app, (SELECT min(j.function) FROM {schema}.job j WHERE j.application = n.app AND j.state <> 'removed' AND j.function > n.name)
      FROM names n WHERE n.name IS NOT NULL
)
SELECT n.name FROM names n WHERE n.name IS NOT NULL

-- name: change
SELECT {job} FROM {schema}.change_job(%(change)s) j

-- name: sync
SELECT {job}, {was} FROM {schema}.sync_jobs(%(application)s, %(release)s, %(changes)s) s, LATERAL (SELECT (s.after).*) j, LATERAL (SELECT (s.before).*) b

-- name: job
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) AND j.name = %(name)s
   AND (%(removed)s OR j.state <> 'removed')

-- name: seen
-- One row in any case: the time, and nulls where there is no such job.
SELECT pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()), {job}
  FROM (SELECT 1) one
  LEFT JOIN {schema}.job j
    ON j.application OPERATOR(pg_catalog.=) (SELECT a.id FROM {schema}.application a WHERE a.name OPERATOR(pg_catalog.=) %(application)s)
   AND j.name OPERATOR(pg_catalog.=) %(name)s

-- name: jobs
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) AND (%(removed)s OR j.state <> 'removed')
 ORDER BY j.name COLLATE "C"

-- name: removed
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) AND j.state = 'removed'
   AND (j.in_code OR j.override IS NOT NULL)
   AND (%(names)s::text[] IS NULL OR j.name = ANY (%(names)s::text[]))
 ORDER BY j.name COLLATE "C"

-- name: planned_by_others
-- '@' comes just before 'A': all readings of one release lie between the two.
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) AND j.state = 'active'
   AND j.next_reading < %(tzdata)s || '@'
UNION ALL
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) AND j.state = 'active'
   AND j.next_reading >= %(tzdata)s || 'A'
 LIMIT %(limit)s

-- name: planned_by_older
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) AND j.state = 'active' AND j.next_reading < j.tzdata
 ORDER BY j.name COLLATE "C" LIMIT %(limit)s

-- name: planned_beyond
SELECT {job} FROM {schema}.job j JOIN {schema}.application a ON a.id = j.application
 WHERE a.name = %(application)s AND j.state = 'active' AND j.next_due >= to_timestamp(%(due)s::float8)
   AND (j.next_due, j.id) > (to_timestamp(%(due)s::float8), %(id)s)
 ORDER BY j.next_due, j.id LIMIT %(limit)s

-- name: applications
SELECT a.name FROM {schema}.application a
 WHERE EXISTS (SELECT FROM {schema}.job j WHERE j.application = a.id AND j.state <> 'removed')
 ORDER BY a.name COLLATE "C"

-- name: changes
SELECT c.job, c.generation, date_part('epoch', c.at), c.what, c.trigger, c.by, c.why, date_part('epoch', c.until)
  FROM {schema}.job_change c JOIN {schema}.job j ON j.id = c.job JOIN {schema}.application a ON a.id = j.application
 WHERE a.name = %(application)s
 ORDER BY c.id

-- name: changes_of_job
SELECT c.job, c.generation, date_part('epoch', c.at), c.what, c.trigger, c.by, c.why, date_part('epoch', c.until)
  FROM {schema}.job_change c
 WHERE c.job = (SELECT j.id FROM {schema}.job j JOIN {schema}.application a ON a.id = j.application WHERE a.name = %(application)s AND j.name = %(name)s)
 ORDER BY c.id

-- name: triggers
SELECT j.id, j.trigger FROM {schema}.job j WHERE j.id = ANY (%(jobs)s::bigint[])

-- name: write_facts
SELECT {schema}.write_facts(%(node)s::uuid, %(application)s, %(hash)s, %(names)s, %(queues)s, %(capacity)s::int, %(release)s::bigint, %(library)s, %(tzdata)s)

-- name: remove_facts
DELETE FROM {schema}.node_facts WHERE node = %(node)s::uuid AND application = %(application)s

-- name: nodes
SELECT f.node::text, s.names, f.queues, f.capacity, f.release, f.library, f.tzdata, n.label, e.name IS NOT NULL
  FROM {schema}.node n
  JOIN {schema}.node_facts f ON f.node = n.id AND f.application = %(application)s
  JOIN {schema}.function_set s ON s.hash = f.functions
  LEFT JOIN {schema}.election e ON e.name = %(planner)s AND e.state = 'held' AND e.holder = n.id
 WHERE n.state = 'alive' ORDER BY n.label COLLATE "C", n.id

-- name: unplanned
SELECT id, name, generation, next_due, trigger, rules, resumes, next_reading
  FROM {schema}.unplanned_jobs(%(application)s, %(before)s, %(limit)s::int, %(strangers)s, %(tzdata)s, %(overdue)s)

-- name: plan
SELECT {schema}.plan_runs(%(jobs)s, %(generations)s, %(dues)s, %(thens)s, %(readings)s, %(places)s, %(keys)s, %(scheduled)s, %(ready)s, %(expire)s,
                          %(states)s, %(reasons)s, %(counts)s, %(untils)s)

-- name: claim
SELECT lanes, others, server, seen::text, due_from, expires_from,
       alive, at, next_at, more, missed, ids, jobs, generations, keys, kinds, scheduled, ready, attempts, failed, arguments
  FROM {schema}.claim_runs(%(node)s::uuid, %(application)s::text, %(token)s::text, %(limit)s::int, %(functions)s, %(queues)s, %(as_of)s,
                           %(lanes)s::int[], %(others)s::int[], %(server)s, %(seen)s::text::pg_snapshot, %(due_from)s, %(expires_from)s)

-- name: definitions
SELECT j.id, j.generation, j.name, j.function, j.kwargs, j.rules::text, j.trigger FROM {schema}.jobs_by_id(%(ids)s) j

-- name: missed
SELECT id, name, generation, rules, runs, scheduled, in_time
  FROM {schema}.missed_jobs(%(application)s, %(limit)s::int, %(functions)s)

-- name: settle
SELECT {schema}.settle_runs(%(job)s, %(generation)s, %(make_up)s, %(skip)s, %(reason)s)

-- name: finish
SELECT accepted, became, wakes
  FROM {schema}.finish_runs(%(ids)s, %(tokens)s, %(states)s, %(reasons)s, %(again)s, %(started)s, %(finished)s)

-- name: roll_call
SELECT at, held_ids, held_tokens, held_asked, held_must_answer, lost_ids FROM {schema}.roll_call(%(node)s::uuid, %(application)s::text, %(stops)s)

-- name: note_begun
SELECT {schema}.note_begun(%(ids)s, %(tokens)s, %(started)s)

-- name: unbegun
SELECT label, ttl FROM {schema}.unbegun(%(job)s, %(generation)s)

-- name: lost
SELECT r.id, j.name, r.key, date_part('epoch', r.scheduled_for), r.attempt, r.node::text, r.state::text, r.reason
  FROM {schema}.run r JOIN {schema}.job j ON j.id = r.job WHERE r.id = ANY (%(ids)s::bigint[])

-- name: put_back
SELECT {schema}.put_back_runs(%(ids)s, %(tokens)s)

-- name: ask
SELECT {run}, r.digest
  FROM (SELECT (a.run).*, a.digest, a.place FROM {schema}.ask_runs(%(asked)s) WITH ORDINALITY AS a (run, digest, place)) r
  LEFT JOIN {schema}.job j ON j.id OPERATOR(pg_catalog.=) r.job
 ORDER BY r.place

-- name: cancel
SELECT {run} FROM {schema}.cancel_run(%(run)s, %(said)s) r JOIN {schema}.job j ON j.id = r.job

-- name: runs_of_job
-- What is over and what is open have each their index; a branch whose states are not asked for is not gone through.
SELECT {run}
  FROM (SELECT x.* FROM {schema}.job x JOIN {schema}.application a ON a.id = x.application
         WHERE a.name = %(application)s AND x.name = %(job)s) j
 CROSS JOIN LATERAL (
       (SELECT f.* FROM {schema}.run f
         WHERE cardinality(%(finals)s::text[]) > 0 AND f.job = j.id AND f.state > 'running' AND f.state = ANY (%(finals)s::text[]::{schema}.run_state[]) AND {span}
         ORDER BY f.scheduled_for {order}, f.id {order} LIMIT %(limit)s)
       UNION ALL
       (SELECT f.* FROM {schema}.run f
         WHERE f.job = j.id AND f.state <= 'running' AND f.state = ANY (%(states)s::text[]::{schema}.run_state[]) AND {span})
       UNION ALL
       (SELECT f.* FROM {schema}.run f
         WHERE f.job = j.id AND f.state = ANY (%(states)s::text[]::{schema}.run_state[]) AND {reaching})) r
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT %(limit)s

-- name: runs_of_application
-- State by state: of each the first in order, by the index.
SELECT {run}
  FROM (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) a
 CROSS JOIN LATERAL (
       (SELECT f.* FROM unnest(%(finals)s::text[]::{schema}.run_state[]) s (state)
         CROSS JOIN LATERAL (SELECT f.* FROM {schema}.run f
                              WHERE f.application = a.id AND f.state = s.state AND f.state > 'running' AND {span}
                              ORDER BY f.scheduled_for {order}, f.id {order} LIMIT %(limit)s) f)
       UNION ALL
       (SELECT f.* FROM {schema}.job x
         CROSS JOIN LATERAL (SELECT f.* FROM {schema}.run f WHERE f.job = x.id AND f.state <= 'running' AND f.state = 'pending' AND {span}) f
         WHERE 'pending' = ANY (%(states)s::text[]) AND x.application = a.id)
       UNION ALL
       (SELECT f.* FROM {schema}.run f WHERE 'waiting' = ANY (%(states)s::text[]) AND f.application = a.id AND f.state = 'waiting' AND {span})
       UNION ALL
       (SELECT f.* FROM {schema}.run f WHERE 'running' = ANY (%(states)s::text[]) AND f.application = a.id AND f.state = 'running' AND {span})
       UNION ALL
       (SELECT f.* FROM {schema}.job x
         CROSS JOIN LATERAL (SELECT f.* FROM {schema}.run f
                              WHERE f.job = x.id AND f.state = ANY (%(states)s::text[]::{schema}.run_state[]) AND {reaching}) f
         WHERE %(since)s::float8 IS NOT NULL AND x.application = a.id)) r
  JOIN {schema}.job j ON j.id = r.job
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT %(limit)s

-- name: past
-- Of each job the due times that ended as most do, in microseconds, by their end; and the numbers of the other runs.
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

-- name: runs_by_id
SELECT {run} FROM {schema}.run r JOIN {schema}.job j ON j.id = r.job WHERE r.id = ANY (%(ids)s::bigint[]) ORDER BY r.scheduled_for, r.id

-- name: figures
-- Of each job's last runs that began, as `stats_of` has them. The subquery's order is that of the aggregates.
SELECT j.name, s.runs, s.failed, s.took, s.late, s.states[1]::text, date_part('epoch', s.ends[1])
  FROM {schema}.application a JOIN {schema}.job j ON j.application = a.id
 CROSS JOIN LATERAL (
       SELECT count(*) AS runs,
              count(*) FILTER (WHERE r.state IN ('failed', 'lost')) AS failed,
              percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY date_part('epoch', r.finished_at) - date_part('epoch', r.started_at)) AS took,
              percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY CASE WHEN r.state NOT IN ('pending', 'waiting')
                                                                           THEN date_part('epoch', r.started_at) - date_part('epoch', r.due_at) END) AS late,
              array_agg(r.state) FILTER (WHERE r.state > 'running') AS states,
              array_agg(r.finished_at) FILTER (WHERE r.state > 'running') AS ends
         FROM (SELECT f.id, f.state, f.scheduled_for, f.due_at, f.started_at, f.finished_at
                 FROM ((SELECT f.* FROM {schema}.run f WHERE f.job = j.id AND f.state > 'running' AND f.attempt > 0
                         ORDER BY f.scheduled_for DESC, f.id DESC LIMIT %(last)s)
                       UNION ALL
                       (SELECT f.* FROM {schema}.run f WHERE f.job = j.id AND f.state <= 'running' AND f.attempt > 0)) f
                ORDER BY f.scheduled_for DESC, f.id DESC LIMIT %(last)s) r) s
 WHERE a.name = %(application)s

-- name: tally
-- Open runs that are due, by state and node, and those that failed or were lost since; of these at most so many are counted.
SELECT t.state, t.label, t.runs
  FROM (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) a
 CROSS JOIN LATERAL (
       (SELECT 'pending' AS state, '' AS label, count(f.id) AS runs FROM {schema}.job x
         CROSS JOIN LATERAL (SELECT f.id FROM {schema}.run f
                              WHERE f.job = x.id AND f.state <= 'running' AND f.state = 'pending' AND f.scheduled_for < clock_timestamp()) f
         WHERE x.application = a.id)
       UNION ALL
       (SELECT 'waiting', '', count(*) FROM {schema}.run f WHERE f.application = a.id AND f.state = 'waiting')
       UNION ALL
       (SELECT 'running', f.label, count(*) FROM {schema}.run f WHERE f.application = a.id AND f.state = 'running' GROUP BY f.label)
       UNION ALL
       (SELECT s.state::text, '', (SELECT count(*) FROM (SELECT FROM {schema}.run f
                                                    WHERE f.application = a.id AND f.state = s.state AND f.state > 'running'
                                                      AND f.scheduled_for >= to_timestamp(%(since)s::float8) LIMIT %(limit)s) x)
          FROM unnest(ARRAY['failed', 'lost']::{schema}.run_state[]) s (state))) t

-- name: run
SELECT {run}
  FROM {schema}.run r JOIN {schema}.job j ON j.id = r.job JOIN {schema}.application a ON a.id = j.application
 WHERE r.id = %(run)s AND a.name = %(application)s

-- name: began
SELECT {run}
  FROM (SELECT x.* FROM {schema}.job x JOIN {schema}.application a ON a.id = x.application
         WHERE a.name = %(application)s AND x.name = %(name)s) j
 CROSS JOIN LATERAL (
       (SELECT f.* FROM {schema}.run f WHERE f.job = j.id AND f.state > 'running' AND f.attempt > 0 ORDER BY f.scheduled_for DESC, f.id DESC LIMIT %(last)s)
       UNION ALL
       (SELECT f.* FROM {schema}.run f WHERE f.job = j.id AND f.state <= 'running' AND f.attempt > 0)) r
 ORDER BY r.scheduled_for DESC, r.id DESC LIMIT %(last)s

-- name: keep_log
-- A line that is sent again, because the answer to the first time was lost, is there already.
INSERT INTO {schema}.run_log (run, began, place, line)
SELECT l.run, to_timestamp(l.began), l.place, l.line
  FROM unnest(%(runs)s::bigint[], %(began)s::float8[], %(places)s::bigint[], %(lines)s::text[]) AS l (run, began, place, line)
 WHERE EXISTS (SELECT FROM {schema}.run r WHERE r.id = l.run)
ON CONFLICT DO NOTHING

-- name: log
SELECT l.line FROM {schema}.run_log l WHERE l.run = %(run)s ORDER BY l.began, l.place

-- name: prune
SELECT removed, up_to, more
  FROM {schema}.prune_runs(%(application)s, %(before)s, %(keep)s::int, %(limit)s::int, %(beyond)s, %(jobs)s::int, %(keys_before)s)

-- name: forget
SELECT forgotten, more FROM {schema}.forget_jobs(%(application)s, %(before)s, %(defined)s, %(limit)s::int)

-- name: guard
-- Whoever comes at the same time waits for the first one's commit, and then sees it.
INSERT INTO {schema}.guard AS g (name, key, at, by, until)
VALUES (%(name)s, %(key)s, clock_timestamp(), %(by)s, clock_timestamp() + make_interval(secs => %(within)s::float8))
ON CONFLICT (name, key) DO UPDATE
   SET at = clock_timestamp(), by = excluded.by, until = CASE WHEN g.until IS NOT NULL THEN excluded.until END   -- for ever stays so
 WHERE g.at <= clock_timestamp() - make_interval(secs => %(within)s::float8)
RETURNING true

-- name: unguard
DELETE FROM {schema}.guard WHERE name = %(name)s AND key = %(key)s AND by = %(by)s
