-- Statements about jobs and the nodes that run them.
--
-- `change` and `seen` here, and `ask` in runs.sql, also go over the application's own connection (`conn=…`), whose
-- search_path is not ours to set. So they, and the columns of a job and a run, name the schema of each function,
-- operator and type.

-- name: now
-- The server's clock.
SELECT date_part('epoch', clock_timestamp())

-- name: applications
-- Applications that have jobs.
SELECT a.name FROM {schema}.application a
 WHERE EXISTS (SELECT FROM {schema}.job j WHERE j.application = a.id AND j.state <> 'removed')
 ORDER BY a.name COLLATE "C"

-- name: functions
-- The functions that the jobs of an application call. Steps from one function to the next, however many jobs there are.
WITH RECURSIVE names AS (
    SELECT a.id AS app,
           (SELECT min(j.function) FROM {schema}.job j WHERE j.application = a.id AND j.state <> 'removed') AS name
      FROM {schema}.application a WHERE a.name = %(application)s
    UNION ALL
    SELECT n.app, (SELECT min(j.function) FROM {schema}.job j
                    WHERE j.application = n.app AND j.state <> 'removed' AND j.function > n.name)
      FROM names n WHERE n.name IS NOT NULL
)
SELECT n.name FROM names n WHERE n.name IS NOT NULL

-- name: write_facts
-- Write what a node can run for an application.
SELECT {schema}.write_facts(%(node)s::uuid, %(application)s, %(hash)s, %(names)s, %(queues)s, %(capacity)s::int,
                            %(release)s::bigint, %(library)s, %(tzdata)s, %(host)s, %(signatures)s,
                            %(clock_offset)s::float8, %(unfit)s)

-- name: remove_facts
-- Delete what a node can run for an application.
DELETE FROM {schema}.node_facts WHERE node = %(node)s::uuid AND application = %(application)s

-- name: nodes
-- The live nodes of an application, and which of them is the planner.
SELECT f.node::text, s.names, f.queues, f.capacity, f.release, f.library, f.tzdata, f.host, f.signatures,
       f.clock_offset, f.unfit, n.label, e.name IS NOT NULL, date_part('epoch', n.joined_at)
  FROM {schema}.node n
  JOIN {schema}.node_facts f ON f.node = n.id AND f.application = %(application)s
  JOIN {schema}.function_set s ON s.hash = f.functions
  LEFT JOIN {schema}.election e ON e.name = %(planner)s AND e.state = 'held' AND e.holder = n.id
 WHERE n.state = 'alive' ORDER BY n.label COLLATE "C", n.id

-- name: silent
-- Of live nodes, those that gave no sign of life within their ttl.
SELECT n.id::text FROM {schema}.node n
 WHERE n.id = ANY (%(ids)s::uuid[]) AND n.state = 'alive'
   AND clock_timestamp() - n.renewed_at >= make_interval(secs => n.ttl)

-- name: running
-- How many runs each node has.
SELECT node::text, runs FROM {schema}.running_by_node(%(application)s)

-- name: unserved
-- Active jobs in lanes that no live node serves.
SELECT id, name, function, queue
  FROM {schema}.unserved_jobs(%(application)s, %(functions)s::text[], %(queues)s::text[], %(limit)s::int)

-- name: stored_arguments
-- The arguments of jobs, page by page.
SELECT name, function, kwargs FROM {schema}.stored_arguments(%(application)s, %(after)s, %(limit)s::int)

-- name: requested_arguments
-- The arguments that runs were requested with, page by page.
SELECT id, name, function, kwargs
  FROM {schema}.requested_arguments(%(application)s, %(after)s::bigint, %(limit)s::int)

-- name: overdue_jobs
-- Active jobs whose next due time is past its grace and not planned. Spread and jitter come on top.
SELECT j.id, j.name, j.function, j.queue, date_part('epoch', j.next_due), j.rules::text
  FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) AND j.state = 'active'
   AND j.next_due < to_timestamp(%(before)s::float8)
   AND date_part('epoch', j.next_due) + j.on_time < %(before)s::float8
 ORDER BY j.next_due LIMIT %(limit)s

-- name: overdue_runs
-- Runs past their grace that no node has begun.
SELECT job, name, function, queue, due, late_since, id
  FROM {schema}.overdue_runs(%(application)s, %(before)s, %(limit)s::int)

-- name: followers
-- The jobs that follow this one, or any.
SELECT {job} FROM {schema}.application a JOIN {schema}.job j ON j.application = a.id
 WHERE a.name = %(application)s AND j.after IS NOT NULL AND j.state <> 'removed'
   AND (%(parent)s::text IS NULL OR j.after = %(parent)s::text)
 ORDER BY j.name COLLATE "C"

-- name: change
-- Make one change to one job.
SELECT {job} FROM {schema}.change_job(%(change)s) j

-- name: sync
-- Bring the jobs defined in code into the ledger.
SELECT {job}, {was}
  FROM {schema}.sync_jobs(%(application)s, %(release)s, %(changes)s) s, LATERAL (SELECT (s.after).*) j,
       LATERAL (SELECT (s.before).*) b

-- name: job
-- One job by name.
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) AND j.name = %(name)s
   AND (%(removed)s OR j.state <> 'removed')

-- name: seen
-- The server's clock and one job. Always one row, with NULLs if there is no such job.
SELECT pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()), {job}
  FROM (SELECT 1) one
  LEFT JOIN {schema}.job j
    ON j.application OPERATOR(pg_catalog.=) (SELECT a.id FROM {schema}.application a
                                              WHERE a.name OPERATOR(pg_catalog.=) %(application)s)
   AND j.name OPERATOR(pg_catalog.=) %(name)s

-- name: jobs
-- All jobs of an application.
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s)
   AND (%(removed)s OR j.state <> 'removed')
 ORDER BY j.name COLLATE "C"

-- name: find_jobs
-- The jobs of an application with a name, a tag or a queue.
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s)
   AND j.state <> 'removed' AND j.name COLLATE "C" > %(after)s::text
   AND (%(pattern)s::text IS NULL OR j.name LIKE %(pattern)s::text)
   AND (%(queue)s::text IS NULL OR j.queue = %(queue)s::text)
   AND (%(tag)s::text IS NULL OR jsonb_exists((j.rules -> 'tags')::jsonb, %(tag)s::text))
 ORDER BY j.name COLLATE "C" LIMIT %(limit)s::bigint

-- name: count_jobs
-- How many jobs an application has.
SELECT count(*) FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s)
   AND j.state <> 'removed'

-- name: job_page
-- A page of the jobs of an application, and how many jobs the whole list has. First the narrow rows are chosen and
-- sorted, then those of the page are read in full. Always one row, with NULLs if the page is empty.
WITH listed AS MATERIALIZED (
    SELECT x.id, x.name, x.next_due
      FROM {schema}.job x
     WHERE x.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s)
       AND (CASE %(state)s::text
            WHEN 'removed' THEN x.state = 'removed' AND (x.in_code OR x.override IS NOT NULL)
            WHEN 'paused' THEN x.state = 'paused'
            WHEN 'active' THEN x.state = 'active'
                 AND NOT (x.next_due IS NULL AND x.trigger IS NOT NULL AND {schema}.state_of_planned(x.id) = 'done')
            WHEN 'done' THEN x.state = 'active'
                 AND x.next_due IS NULL AND x.trigger IS NOT NULL AND {schema}.state_of_planned(x.id) = 'done'
            ELSE x.state <> 'removed' END)
       AND strpos(lower(x.name), lower(%(contains)s::text)) > 0
       AND (%(queue)s::text IS NULL OR x.queue = %(queue)s::text)
       AND (%(tag)s::text IS NULL OR jsonb_exists((x.rules -> 'tags')::jsonb, %(tag)s::text))
       AND (%(names)s::text[] IS NULL OR x.name = ANY (%(names)s::text[]))
), page AS (
    SELECT l.id, row_number() OVER () AS place
      FROM (SELECT listed.id FROM listed
             ORDER BY listed.name = ANY (%(first)s::text[]) DESC,
                      CASE WHEN %(by_next)s THEN listed.next_due END, listed.name COLLATE "C"
             LIMIT %(limit)s OFFSET %(skip)s) l
)
SELECT (SELECT count(*) FROM listed), {job}
  FROM (SELECT 1) one
  LEFT JOIN page ON true
  LEFT JOIN {schema}.job j ON j.id = page.id
 ORDER BY page.place

-- name: change_many
-- Make one change to each of many jobs.
SELECT {job} FROM {schema}.change_jobs(%(changes)s) c, LATERAL (SELECT (c.changed).*) j ORDER BY c.place

-- name: removed
-- Removed jobs that code defines or has defined.
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) AND j.state = 'removed'
   AND (j.in_code OR j.override IS NOT NULL)
   AND (%(names)s::text[] IS NULL OR j.name = ANY (%(names)s::text[]))
 ORDER BY j.name COLLATE "C"

-- name: set_pool
-- Set the size of a pool.
SELECT {schema}.set_pool(%(application)s, %(name)s, %(size)s::int, %(action)s::jsonb)

-- name: pools
-- The pools of an application, with how many runs have a place and how many wait.
SELECT n.name, (SELECT p.size FROM {schema}.pool p WHERE p.application = a.id AND p.name = n.name),
       (SELECT count(*) FROM {schema}.run r
         WHERE r.application = a.id AND r.pool = n.name AND r.state IN ('waiting', 'running') AND r.state = 'running'),
       (SELECT count(*) FROM {schema}.run r
         WHERE r.application = a.id AND r.pool = n.name AND r.state IN ('waiting', 'running') AND r.state = 'waiting')
  FROM {schema}.application a
 CROSS JOIN LATERAL (SELECT p.name FROM {schema}.pool p WHERE p.application = a.id AND p.size IS NOT NULL
                     UNION
                     SELECT j.pool FROM {schema}.job j
                      WHERE j.application = a.id AND j.pool IS NOT NULL AND j.state <> 'removed') n
 WHERE a.name = %(application)s
 ORDER BY n.name COLLATE "C"

-- name: triggers
-- The triggers of jobs by id; of one that follows another, that of the first in the chain.
WITH RECURSIVE line AS (
    SELECT j.id, j.application, j.trigger, j.after FROM {schema}.job j WHERE j.id = ANY (%(jobs)s::bigint[])
     UNION   -- not ALL: the rows may say that jobs follow each other in a circle
    SELECT l.id, p.application, p.trigger, p.after
      FROM line l JOIN {schema}.job p ON p.application = l.application
                                     AND p.name = l.after COLLATE "default"   -- as the index of names
     WHERE l.trigger IS NULL
)
SELECT l.id, max(l.trigger) FROM line l GROUP BY l.id

-- name: definitions
-- What claims do not repeat with every run.
SELECT j.id, j.generation, j.name, j.function, j.kwargs, j.rules::text, j.trigger FROM {schema}.jobs_by_id(%(ids)s) j

-- name: changes
-- The history of changes to all jobs of an application.
SELECT c.job, c.generation, date_part('epoch', c.at), c.what, c.trigger, c.by, c.why, date_part('epoch', c.until),
       c.after
  FROM {schema}.job_change c JOIN {schema}.job j ON j.id = c.job JOIN {schema}.application a ON a.id = j.application
 WHERE a.name = %(application)s
 ORDER BY c.id

-- name: changes_of_job
-- The history of changes to one job.
SELECT c.job, c.generation, date_part('epoch', c.at), c.what, c.trigger, c.by, c.why, date_part('epoch', c.until),
       c.after
  FROM {schema}.job_change c
 WHERE c.job = (SELECT j.id FROM {schema}.job j JOIN {schema}.application a ON a.id = j.application
                 WHERE a.name = %(application)s AND j.name = %(name)s)
 ORDER BY c.id

-- name: unplanned
-- Jobs to plan, and paused jobs to resume.
SELECT id, name, generation, next_due, trigger, rules, resumes, next_reading
  FROM {schema}.unplanned_jobs(%(application)s, %(before)s, %(limit)s::int, %(strangers)s, %(tzdata)s, %(overdue)s)

-- name: plan
-- Insert planned runs and move their jobs on.
SELECT {schema}.plan_runs(%(jobs)s, %(generations)s, %(dues)s, %(thens)s, %(readings)s,
                          %(places)s, %(keys)s, %(scheduled)s, %(ready)s, %(expire)s,
                          %(states)s, %(reasons)s, %(counts)s, %(untils)s)

-- name: planned_by_others
-- Active jobs planned with another release of the zone rules. '@' comes just before 'A', so all readings of one release
-- lie between the two.
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) AND j.state = 'active'
   AND j.next_reading < %(tzdata)s || '@'
UNION ALL
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) AND j.state = 'active'
   AND j.next_reading >= %(tzdata)s || 'A'
 LIMIT %(limit)s

-- name: planned_by_older
-- Active jobs planned with an older release of the zone rules than they were written with.
SELECT {job} FROM {schema}.job j
 WHERE j.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s) AND j.state = 'active'
   AND j.next_reading < j.tzdata
 ORDER BY j.name COLLATE "C" LIMIT %(limit)s

-- name: planned_beyond
-- Active jobs whose next due time comes after an instant, page by page.
SELECT {job} FROM {schema}.job j JOIN {schema}.application a ON a.id = j.application
 WHERE a.name = %(application)s AND j.state = 'active' AND j.next_due >= to_timestamp(%(due)s::float8)
   AND (j.next_due, j.id) > (to_timestamp(%(due)s::float8), %(id)s)
 ORDER BY j.next_due, j.id LIMIT %(limit)s

-- name: missed
-- Jobs with missed runs.
SELECT id, name, generation, rules, runs, scheduled, in_time
  FROM {schema}.missed_jobs(%(application)s, %(limit)s::int, %(functions)s)

-- name: forget
-- Delete jobs that are over.
SELECT forgotten, more FROM {schema}.forget_jobs(%(application)s, %(before)s, %(defined)s, %(limit)s::int)
