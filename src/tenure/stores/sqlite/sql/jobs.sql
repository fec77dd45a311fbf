-- Statements about jobs and the nodes that run them.
--
-- INDEXED BY here and in runs.sql: an application that runs ANALYZE must not lead SQLite to another plan.

-- name: applications
-- Applications that have jobs.
SELECT DISTINCT application FROM tenure_job WHERE state <> 'removed' ORDER BY application

-- name: functions
-- The functions that the jobs of an application call. Steps from one function to the next, however many jobs there
-- are.
WITH RECURSIVE names (name) AS (
    SELECT min(function) FROM tenure_job WHERE application = :application AND state <> 'removed'
    UNION ALL
    SELECT (SELECT min(function) FROM tenure_job
             WHERE application = :application AND state <> 'removed' AND function > names.name)
      FROM names WHERE names.name IS NOT NULL
)
SELECT name FROM names WHERE name IS NOT NULL

-- name: write_functions
-- Write a set of functions.
INSERT INTO tenure_function_set (hash, names) VALUES (:hash, :names) ON CONFLICT DO NOTHING

-- name: write_facts
-- Write what a node can run for an application.
INSERT INTO tenure_node_facts (node, application, functions, queues, capacity, release, library, tzdata, host,
                               signatures, clock_offset, unfit)
SELECT id, :application, :hash, :queues, :capacity, :release, :library, :tzdata, :host, :signatures, :clock_offset,
       :unfit
  FROM tenure_node WHERE id = :node AND state = 'alive'
ON CONFLICT (node, application) DO UPDATE
   SET (functions, queues, capacity, release, library, tzdata, host, signatures, clock_offset, unfit)
     = (excluded.functions, excluded.queues, excluded.capacity, excluded.release, excluded.library, excluded.tzdata,
        excluded.host, excluded.signatures, excluded.clock_offset, excluded.unfit)

-- name: remove_facts
-- Delete what a node can run for an application.
DELETE FROM tenure_node_facts WHERE node = :node AND application = :application

-- name: nodes
-- The live nodes of an application, and which of them is the planner.
SELECT f.node, s.names, f.queues, f.capacity, f.release, f.library, f.tzdata, f.host, f.signatures, f.clock_offset,
       f.unfit, n.label, e.name IS NOT NULL, n.joined_at
  FROM tenure_node n INDEXED BY tenure_node_alive
 CROSS JOIN tenure_node_facts f ON f.node = n.id AND f.application = :application
 CROSS JOIN tenure_function_set s ON s.hash = f.functions
  LEFT JOIN tenure_election e ON e.name = :planner AND e.state = 'held' AND e.holder = n.id
 WHERE n.state = 'alive' ORDER BY n.label, n.id

-- name: running
-- How many runs each node has.
SELECT node, count(*) FROM tenure_run INDEXED BY tenure_run_running
 WHERE application = :application AND state = 'running' GROUP BY node

-- name: unserved
-- Active jobs in lanes that no live node serves. A served function without a queue is served in all queues. Lanes are
-- never removed, so each is looked up among the jobs of its function.
SELECT j.id, j.name, j.function, j.queue
  FROM tenure_lane l
 CROSS JOIN tenure_job j INDEXED BY tenure_job_function
    ON j.application = l.application AND j.function = l.function AND j.state <> 'removed'
   AND j.state = 'active' AND j.queue = l.queue
   AND (j.next_due IS NOT NULL OR j.trigger IS NULL   -- else it is done, unless a run is open
        OR EXISTS (SELECT 1 FROM tenure_run r INDEXED BY tenure_run_open
                    WHERE r.job = j.id AND (r.state = 'pending' OR r.state = 'waiting' OR r.state = 'running')))
 WHERE l.application = :application
   AND NOT EXISTS (SELECT 1 FROM json_each(:served) s
                    WHERE s.value ->> 0 = l.function AND (s.value ->> 1 IS NULL OR s.value ->> 1 = l.queue))
 LIMIT :limit

-- name: stored_arguments
-- The arguments of jobs by name, page by page.
SELECT name, function, kwargs FROM tenure_job
 WHERE application = :application AND name > :after AND +state <> 'removed'
   AND (trigger IS NOT NULL OR after IS NOT NULL OR kwargs <> '{}')
 ORDER BY name LIMIT :limit

-- name: requested_arguments
-- The arguments that runs were requested with, by number, page by page.
SELECT r.id, j.name, j.function, r.kwargs
  FROM tenure_run r INDEXED BY tenure_run_arguments
 CROSS JOIN tenure_job j ON j.id = r.job
 WHERE r.application = :application AND r.kwargs IS NOT NULL AND (r.state = 'pending' OR r.state = 'waiting')
   AND r.id > :after
 ORDER BY r.id LIMIT :limit

-- name: overdue_jobs
-- Active jobs whose next due time is past and not planned. The grace comes on top.
SELECT id, name, function, queue, next_due, rules
  FROM tenure_job INDEXED BY tenure_job_unplanned
 WHERE application = :application AND state = 'active' AND next_due IS NOT NULL AND next_due < :before
 ORDER BY next_due

-- name: overdue_runs
-- Runs past their grace that no node has begun, the oldest of each lane. What explains a late run is left out: it waits
-- (overlap), has no lane (its job is paused), has been attempted, or was requested. `core/overdue.py` has the list.
-- For the few without `expires_at` the grace comes on top; they are looked for among the oldest.
SELECT r.job, j.name, j.function, j.queue, r.scheduled_for, r.due_at, r.expires_at, r.id, j.rules
  FROM tenure_lane l
 CROSS JOIN tenure_run r
    ON r.id IN (SELECT g.id
                  FROM (SELECT e.id FROM tenure_run e INDEXED BY tenure_run_expires
                         WHERE e.lane = l.id AND e.state = 'pending' AND e.expires_at < :before
                           AND e.attempt = 0 AND e.kind <> 'manual' AND e.by = ''
                         ORDER BY e.expires_at LIMIT :limit) g
                 UNION ALL
                SELECT d.id
                  FROM (SELECT o.id, o.expires_at, o.attempt, o.kind, o.by FROM tenure_run o INDEXED BY tenure_run_due
                         WHERE o.lane = l.id AND o.state = 'pending' AND o.due_at < :before
                         ORDER BY o.due_at LIMIT :limit) d
                 WHERE d.expires_at IS NULL AND d.attempt = 0 AND d.kind <> 'manual' AND d.by = '')
 CROSS JOIN tenure_job j ON j.id = r.job
 WHERE l.application = :application

-- name: job
-- One job by name. A job without a due time left and without an open run is done.
SELECT {job_or_done}
  FROM tenure_job WHERE application = :application AND name = :name

-- name: jobs
-- All jobs of an application.
SELECT {job_or_done}
  FROM tenure_job WHERE application = :application ORDER BY name

-- name: find_jobs
-- The jobs of an application with a name, a tag or a queue.
SELECT {job_or_done}
  FROM tenure_job WHERE application = :application AND state <> 'removed' AND name > :after
   AND (:pattern IS NULL OR name GLOB :pattern) AND (:queue IS NULL OR queue = :queue)
   AND (:tag IS NULL
        OR EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(rules) THEN rules ELSE '{}' END, '$.tags') t
                    WHERE t.value = :tag))
 ORDER BY name LIMIT :limit

-- name: count_jobs
-- How many jobs an application has.
SELECT count(*) FROM tenure_job WHERE application = :application AND state <> 'removed'

-- name: count_job_page
-- How many jobs a list has.
SELECT count(*)
  FROM tenure_job
 WHERE {listed}

-- name: job_page
-- A page of the jobs of an application.
SELECT {job_or_done}
  FROM tenure_job
 WHERE {listed}
 ORDER BY name IN (SELECT value FROM json_each(:first)) DESC, CASE WHEN :by_next THEN next_due IS NULL END,
          CASE WHEN :by_next THEN next_due END, name
 LIMIT :limit OFFSET :skip

-- name: removed
-- Removed jobs that code defines or has defined.
SELECT {job}
  FROM tenure_job INDEXED BY tenure_job_removed
 WHERE application = :application AND state = 'removed' AND (in_code OR override IS NOT NULL)
   AND (:names IS NULL OR name IN (SELECT value FROM json_each(:names)))
 ORDER BY name

-- name: triggers
-- The triggers of jobs by id; of one that follows another, that of the first in the chain.
WITH RECURSIVE line (id, application, trigger, after) AS (
    SELECT j.id, j.application, j.trigger, j.after FROM json_each(:jobs) x CROSS JOIN tenure_job j ON j.id = x.value
     UNION   -- not ALL: the rows may say that jobs follow each other in a circle
    SELECT line.id, p.application, p.trigger, p.after
      FROM line CROSS JOIN tenure_job p ON p.application = line.application AND p.name = line.after
     WHERE line.trigger IS NULL
)
SELECT id, max(trigger) FROM line GROUP BY id

-- name: last_generation
-- The highest generation of jobs whose rows were deleted.
SELECT coalesce(max(generation), 0) FROM tenure_forgotten WHERE application = :application

-- name: add_job
-- Insert a new job.
INSERT INTO tenure_job (application, name, function, trigger, rules, queue, max_running, pool, after, kwargs, in_code,
                        release, tzdata, since, override, defined_at, kept_since)
VALUES (:application, :name, :function, :trigger, :rules, :queue, :max_running, :pool, :after, :kwargs, :in_code,
        :release, :tzdata, :now, :override, :now,
        coalesce((SELECT f.kept_since FROM tenure_forgotten f WHERE f.application = :application), 0))

-- name: define_job
-- Write the definition of a job. An unchanged trigger goes on counting from where it did; a job that is added again
-- begins anew.
UPDATE tenure_job
   SET function = :function, trigger = :trigger, rules = :rules, queue = :queue, max_running = :max_running,
       pool = :pool, after = :after, kwargs = :kwargs, in_code = :in_code, release = :release, tzdata = :tzdata,
       override = :override, defined_at = :now,
       since = CASE WHEN :added OR trigger IS NOT :trigger THEN :now ELSE since END
 WHERE id = :id

-- name: move_job
-- Write the state of a job after a change.
UPDATE tenure_job
   SET state = :state, generation = :generation, next_due = :next_due, next_reading = :next_reading,
       since = coalesce(:since, since),
       paused_until = :paused_until, paused_by = :paused_by, paused_why = :paused_why,
       removed_at = :removed_at, removed_by = :removed_by
 WHERE id = :id

-- name: followers
-- The jobs that follow this one, or any.
SELECT {job_or_done}
  FROM tenure_job INDEXED BY tenure_job_after
 WHERE application = :application AND after IS NOT NULL AND (:parent IS NULL OR after = :parent)
   AND state <> 'removed'
 ORDER BY name

-- name: behind
-- The jobs that follow this one, and those that follow them.
WITH RECURSIVE behind (id, application, name) AS (
    SELECT f.id, f.application, f.name
      FROM tenure_job p CROSS JOIN tenure_job f INDEXED BY tenure_job_after
        ON f.application = p.application AND f.after = p.name AND f.after IS NOT NULL
     WHERE p.id = :id
    UNION
    SELECT f.id, f.application, f.name
      FROM behind CROSS JOIN tenure_job f INDEXED BY tenure_job_after
        ON f.application = behind.application AND f.after = behind.name AND f.after IS NOT NULL
)
SELECT id FROM behind

-- name: get_followed
-- Note that a job is followed if another follows it.
UPDATE tenure_job SET followed = 1
 WHERE id = :id AND NOT followed
   AND EXISTS (SELECT 1 FROM tenure_job f INDEXED BY tenure_job_after
                WHERE f.application = tenure_job.application AND f.after = tenure_job.name AND f.after IS NOT NULL
                  AND f.state <> 'removed')

-- name: new_parent
-- The job that a job follows, unless it was followed before.
SELECT p.id FROM tenure_job f CROSS JOIN tenure_job p ON p.application = f.application AND p.name = f.after
 WHERE f.id = :id AND NOT p.followed

-- name: add_lane
-- Insert the lane of a job, if it is new.
INSERT INTO tenure_lane (application, function, queue)
SELECT application, function, queue FROM tenure_job WHERE id = :id
ON CONFLICT (application, function, queue) DO NOTHING

-- name: take_lane
-- Give a job its lane, or none while it is not active.
UPDATE tenure_job
   SET lane = CASE state WHEN 'active' THEN (SELECT l.id FROM tenure_lane l
                                              WHERE l.application = tenure_job.application
                                                AND l.function = tenure_job.function
                                                AND l.queue = tenure_job.queue) END
 WHERE id = :id

-- name: raise_release
-- Note that a newer release of the code defines a job alike.
UPDATE tenure_job SET release = :release, tzdata = :tzdata WHERE id = :id

-- name: see_defined
-- Note that code still defines a job.
UPDATE tenure_job SET defined_at = max(defined_at, :now) WHERE id = :id

-- name: note_change
-- Write a change into the history.
INSERT INTO tenure_change (job, generation, at, what, trigger, by, why, until, after)
SELECT id, generation, :now, :what, trigger, :by, :why, :until, after FROM tenure_job WHERE id = :id

-- name: changes
-- The history of changes to all jobs of an application.
SELECT c.job, c.generation, c.at, c.what, c.trigger, c.by, c.why, c.until, c.after
  FROM tenure_job j JOIN tenure_change c ON c.job = j.id WHERE j.application = :application ORDER BY c.id

-- name: changes_of_job
-- The history of changes to one job.
SELECT c.job, c.generation, c.at, c.what, c.trigger, c.by, c.why, c.until, c.after
  FROM tenure_job j JOIN tenure_change c ON c.job = j.id
 WHERE j.application = :application AND j.name = :name ORDER BY c.id

-- name: unplanned
-- Jobs to plan.
SELECT id, name, generation, next_due, trigger, rules, next_reading
  FROM tenure_job
 WHERE application = :application AND state = 'active' AND next_due < :before
   AND function NOT IN (SELECT value FROM json_each(:strangers))
   AND (:tzdata = '' OR tzdata <= :tzdata OR next_due < :overdue)
 ORDER BY next_due LIMIT :limit

-- name: resuming
-- Paused jobs whose pause is over.
SELECT id, name, generation, next_due, trigger, rules, next_reading
  FROM tenure_job
 WHERE application = :application AND state = 'paused' AND paused_until <= :now
   AND function NOT IN (SELECT value FROM json_each(:strangers))
   AND (:tzdata = '' OR tzdata <= :tzdata OR paused_until < :overdue)
 ORDER BY paused_until LIMIT :limit

-- name: plannable
-- Of planned jobs, those that have not changed since they were read.
SELECT j.id, j.application
  FROM json_each(:planned) p
 CROSS JOIN tenure_job j ON j.id = json_extract(p.value, '$[0]')
 WHERE j.generation = json_extract(p.value, '$[1]') AND j.next_due = json_extract(p.value, '$[2]')
   AND j.state = 'active'

-- name: move_on
-- Move a job to its next due time.
UPDATE tenure_job SET next_due = ?, next_reading = ? WHERE id = ?

-- name: planned_by_others
-- Active jobs planned with another release of the zone rules. '@' comes just before 'A', so all readings of one
-- release lie between the two.
SELECT {job}
  FROM tenure_job INDEXED BY tenure_job_reading
 WHERE application = :application AND state = 'active' AND next_reading IS NOT NULL AND next_reading < :tzdata || '@'
UNION ALL
SELECT {job}
  FROM tenure_job INDEXED BY tenure_job_reading
 WHERE application = :application AND state = 'active' AND next_reading IS NOT NULL AND next_reading >= :tzdata || 'A'
 LIMIT :limit

-- name: planned_by_older
-- Active jobs planned with an older release of the zone rules than they were written with.
SELECT {job}
  FROM tenure_job INDEXED BY tenure_job_older_zones
 WHERE application = :application AND state = 'active' AND next_reading < tzdata ORDER BY name LIMIT :limit

-- name: planned_beyond
-- Active jobs whose next due time comes after an instant, page by page.
SELECT {job}
  FROM tenure_job INDEXED BY tenure_job_unplanned
 WHERE application = :application AND state = 'active' AND next_due IS NOT NULL AND (next_due, id) > (:due, :id)
 ORDER BY next_due, id LIMIT :limit

-- name: missed_jobs
-- Jobs with missed runs.
SELECT DISTINCT j.id, j.name, j.generation, j.rules
  FROM tenure_lane l
 CROSS JOIN tenure_run r INDEXED BY tenure_run_expires ON r.lane = l.id
 CROSS JOIN tenure_job j ON j.id = r.job
 WHERE l.application = :application AND (:functions IS NULL OR l.function IN (SELECT value FROM json_each(:functions)))
   AND r.state = 'pending' AND r.expires_at <= :now AND j.state = 'active'
 LIMIT :limit

-- name: page
-- A page of jobs, for retention.
SELECT id FROM tenure_job WHERE id > :beyond AND application = :application ORDER BY id LIMIT :jobs

-- name: live_code
-- Jobs that are over but that live nodes define, to be noted now and then.
SELECT id FROM tenure_job INDEXED BY tenure_job_over
 WHERE application = :application
   AND (state = 'removed' OR (state = 'active' AND next_due IS NULL AND trigger IS NOT NULL))
   AND defined_at < :seen_before AND (in_code OR override IS NOT NULL)
   AND coalesce(CASE WHEN json_valid(override) THEN json_extract(override, '$.code.function') END, function)
       IN (SELECT value FROM json_each(:defined))

-- name: forgettable
-- Jobs that are removed or done, that no code has defined since an instant, and that have neither a run nor a kept
-- key.
SELECT j.id, j.generation FROM tenure_job j INDEXED BY tenure_job_over
 WHERE j.application = :application
   AND (j.state = 'removed' OR (j.state = 'active' AND j.next_due IS NULL AND j.trigger IS NOT NULL))
   AND j.defined_at < :before AND j.since < :before AND coalesce(j.removed_at, 0) < :before
   AND NOT ((j.in_code OR j.override IS NOT NULL)
            AND coalesce(CASE WHEN json_valid(j.override) THEN json_extract(j.override, '$.code.function') END,
                         j.function)
                IN (SELECT value FROM json_each(:defined)))
   AND NOT EXISTS (SELECT 1 FROM tenure_run r WHERE r.job = j.id)
   AND NOT EXISTS (SELECT 1 FROM tenure_kept_key k WHERE k.job = j.id)
   AND NOT EXISTS (SELECT 1 FROM tenure_backfill_due d INDEXED BY tenure_backfill_due_unsettled
                    WHERE d.job = j.id AND d.outcome IS NULL)
 ORDER BY j.defined_at LIMIT :limit

-- name: forget_changes
-- Delete a part of the history of jobs.
DELETE FROM tenure_change
 WHERE id IN (SELECT c.id FROM json_each(:jobs) j CROSS JOIN tenure_change c ON c.job = j.value LIMIT :rows)

-- name: with_changes
-- Of these jobs, those that still have a history.
SELECT j.value FROM json_each(:jobs) j WHERE EXISTS (SELECT 1 FROM tenure_change c WHERE c.job = j.value)

-- name: forget_job
-- Delete a job.
DELETE FROM tenure_job WHERE id = ?

-- name: note_forgotten
-- Note until when deleted jobs may have run, and their highest generation.
INSERT INTO tenure_forgotten (application, kept_since, generation) VALUES (:application, :before, :generation)
ON CONFLICT (application) DO UPDATE
   SET kept_since = max(kept_since, excluded.kept_since), generation = max(generation, excluded.generation)
