-- name: job
-- A job without a due time left and without an open run is done.
SELECT id, application, name, function, trigger, rules, kwargs, in_code, release, tzdata,
       CASE WHEN state = 'active' AND next_due IS NULL AND trigger IS NOT NULL
             AND NOT EXISTS (SELECT 1 FROM tenure_run r INDEXED BY tenure_run_open
                              WHERE r.job = tenure_job.id AND (r.state = 'pending' OR r.state = 'waiting' OR r.state = 'running'))
            THEN 'done' ELSE state END,
       generation, next_due, paused_until, paused_by, paused_why, since, kept_since, defined_at, removed_at, removed_by, next_reading, override
  FROM tenure_job WHERE application = :application AND name = :name

-- name: jobs
SELECT id, application, name, function, trigger, rules, kwargs, in_code, release, tzdata,
       CASE WHEN state = 'active' AND next_due IS NULL AND trigger IS NOT NULL
             AND NOT EXISTS (SELECT 1 FROM tenure_run r INDEXED BY tenure_run_open
                              WHERE r.job = tenure_job.id AND (r.state = 'pending' OR r.state = 'waiting' OR r.state = 'running'))
            THEN 'done' ELSE state END,
       generation, next_due, paused_until, paused_by, paused_why, since, kept_since, defined_at, removed_at, removed_by, next_reading, override
  FROM tenure_job WHERE application = :application ORDER BY name

-- name: applications
SELECT DISTINCT application FROM tenure_job WHERE state <> 'removed' ORDER BY application

-- name: functions
-- From function to function, however many jobs there are.
WITH RECURSIVE names (name) AS (
    SELECT min(function) FROM tenure_job WHERE application = :application AND state <> 'removed'
    UNION ALL
    SELECT (SELECT min(function) FROM tenure_job WHERE application = :application AND state <> 'removed' AND function > names.name)
      FROM names WHERE names.name IS NOT NULL
)
SELECT name FROM names WHERE name IS NOT NULL

-- name: write_functions
INSERT INTO tenure_function_set (hash, names) VALUES (:hash, :names) ON CONFLICT DO NOTHING

-- name: write_facts
INSERT INTO tenure_node_facts (node, application, functions, queues, capacity, release, library, tzdata)
SELECT id, :application, :hash, :queues, :capacity, :release, :library, :tzdata FROM tenure_node WHERE id = :node AND state = 'alive'
ON CONFLICT (node, application) DO UPDATE
   SET (functions, queues, capacity, release, library, tzdata)
     = (excluded.functions, excluded.queues, excluded.capacity, excluded.release, excluded.library, excluded.tzdata)

-- name: remove_facts
DELETE FROM tenure_node_facts WHERE node = :node AND application = :application

-- name: nodes
SELECT f.node, s.names, f.queues, f.capacity, f.release, f.library, f.tzdata, n.label, e.name IS NOT NULL
  FROM tenure_node n INDEXED BY tenure_node_alive
 CROSS JOIN tenure_node_facts f ON f.node = n.id AND f.application = :application
 CROSS JOIN tenure_function_set s ON s.hash = f.functions
  LEFT JOIN tenure_election e ON e.name = :planner AND e.state = 'held' AND e.holder = n.id
 WHERE n.state = 'alive' ORDER BY n.label, n.id

-- name: removed
SELECT id, application, name, function, trigger, rules, kwargs, in_code, release, tzdata, state, generation, next_due,
       paused_until, paused_by, paused_why, since, kept_since, defined_at, removed_at, removed_by, next_reading, override
  FROM tenure_job INDEXED BY tenure_job_removed
 WHERE application = :application AND state = 'removed' AND (in_code OR override IS NOT NULL)
   AND (:names IS NULL OR name IN (SELECT value FROM json_each(:names)))
 ORDER BY name

-- name: add_job
INSERT INTO tenure_job (application, name, function, trigger, rules, queue, max_running, kwargs, in_code, release, tzdata, since,
                        override, defined_at, kept_since)
VALUES (:application, :name, :function, :trigger, :rules, :queue, :max_running, :kwargs, :in_code, :release, :tzdata, :now, :override, :now,
        coalesce((SELECT f.kept_since FROM tenure_forgotten f WHERE f.application = :application), 0))

-- name: define_job
-- The same trigger goes on counting from where it did; also a job that is added again begins anew.
UPDATE tenure_job
   SET function = :function, trigger = :trigger, rules = :rules, queue = :queue, max_running = :max_running, kwargs = :kwargs,
       in_code = :in_code, release = :release, tzdata = :tzdata, override = :override, defined_at = :now,
       since = CASE WHEN :added OR trigger IS NOT :trigger THEN :now ELSE since END
 WHERE id = :id

-- name: move_job
UPDATE tenure_job
   SET state = :state, generation = :generation, next_due = :next_due, next_reading = :next_reading, since = coalesce(:since, since),
       paused_until = :paused_until, paused_by = :paused_by, paused_why = :paused_why,
       removed_at = :removed_at, removed_by = :removed_by
 WHERE id = :id

-- name: add_lane
INSERT INTO tenure_lane (application, function, queue) SELECT application, function, queue FROM tenure_job WHERE id = :id
ON CONFLICT (application, function, queue) DO NOTHING

-- name: take_lane
UPDATE tenure_job
   SET lane = CASE state WHEN 'active' THEN (SELECT l.id FROM tenure_lane l
                                              WHERE l.application = tenure_job.application AND l.function = tenure_job.function
                                                AND l.queue = tenure_job.queue) END
 WHERE id = :id

-- name: raise_release
UPDATE tenure_job SET release = :release, tzdata = :tzdata WHERE id = :id

-- name: see_defined
UPDATE tenure_job SET defined_at = max(defined_at, :now) WHERE id = :id

-- name: note_change
INSERT INTO tenure_change (job, generation, at, what, trigger, by, why, until)
SELECT id, generation, :now, :what, trigger, :by, :why, :until FROM tenure_job WHERE id = :id

-- name: changes
SELECT c.job, c.generation, c.at, c.what, c.trigger, c.by, c.why, c.until
  FROM tenure_job j JOIN tenure_change c ON c.job = j.id WHERE j.application = :application ORDER BY c.id

-- name: changes_of_job
SELECT c.job, c.generation, c.at, c.what, c.trigger, c.by, c.why, c.until
  FROM tenure_job j JOIN tenure_change c ON c.job = j.id WHERE j.application = :application AND j.name = :name ORDER BY c.id

-- name: withdraw
-- What is scheduled after now was only a proposal.
DELETE FROM tenure_run INDEXED BY tenure_run_open
 WHERE job = :id AND kind = 'due' AND state = 'pending' AND attempt = 0 AND scheduled_for > :now

-- name: withdraw_skipped
-- The clock was ahead for a while when these were decided.
DELETE FROM tenure_run INDEXED BY tenure_run_of_job
 WHERE job = :id AND scheduled_for > :now AND kind = 'due' AND state = 'skipped'

-- name: end_skipped
UPDATE tenure_run INDEXED BY tenure_run_several SET until = :now WHERE job = :id AND until > :now AND state = 'skipped'

-- name: planned_by_others
-- '@' comes just before 'A': all readings of one release lie between the two.
SELECT id, application, name, function, trigger, rules, kwargs, in_code, release, tzdata, state, generation, next_due,
       paused_until, paused_by, paused_why, since, kept_since, defined_at, removed_at, removed_by, next_reading, override
  FROM tenure_job INDEXED BY tenure_job_reading
 WHERE application = :application AND state = 'active' AND next_reading IS NOT NULL AND next_reading < :tzdata || '@'
UNION ALL
SELECT id, application, name, function, trigger, rules, kwargs, in_code, release, tzdata, state, generation, next_due,
       paused_until, paused_by, paused_why, since, kept_since, defined_at, removed_at, removed_by, next_reading, override
  FROM tenure_job INDEXED BY tenure_job_reading
 WHERE application = :application AND state = 'active' AND next_reading IS NOT NULL AND next_reading >= :tzdata || 'A'
 LIMIT :limit

-- name: planned_by_older
SELECT id, application, name, function, trigger, rules, kwargs, in_code, release, tzdata, state, generation, next_due,
       paused_until, paused_by, paused_why, since, kept_since, defined_at, removed_at, removed_by, next_reading, override
  FROM tenure_job INDEXED BY tenure_job_older_zones
 WHERE application = :application AND state = 'active' AND next_reading < tzdata ORDER BY name LIMIT :limit

-- name: planned_beyond
SELECT id, application, name, function, trigger, rules, kwargs, in_code, release, tzdata, state, generation, next_due,
       paused_until, paused_by, paused_why, since, kept_since, defined_at, removed_at, removed_by, next_reading, override
  FROM tenure_job INDEXED BY tenure_job_unplanned
 WHERE application = :application AND state = 'active' AND next_due IS NOT NULL AND (next_due, id) > (:due, :id)
 ORDER BY next_due, id LIMIT :limit

-- name: restamp
UPDATE tenure_run INDEXED BY tenure_run_open SET generation = :generation, lane = (SELECT j.lane FROM tenure_job j WHERE j.id = :id)
 WHERE job = :id AND (state = 'pending' OR state = 'waiting' OR state = 'running') AND state <> 'running'

-- name: skip_paused
UPDATE tenure_run INDEXED BY tenure_run_open SET state = 'skipped', reason = 'paused', finished_at = :now
 WHERE job = :id AND kind = 'due' AND (state = 'pending' OR state = 'waiting' OR state = 'running') AND state <> 'running' AND attempt = 0

-- name: cancel_removed
UPDATE tenure_run INDEXED BY tenure_run_open SET state = 'cancelled', reason = 'removed', finished_at = :now
 WHERE job = :id AND (state = 'pending' OR state = 'waiting' OR state = 'running') AND state <> 'running'

-- name: insert_run
INSERT INTO tenure_run (job, application, lane, key, kind, state, generation, scheduled_for, due_at, expires_at, reason, count, until)
VALUES (?1, ?2, (SELECT lane FROM tenure_job WHERE id = ?1), ?3, 'due', ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (job, key) DO NOTHING

-- name: unplanned
SELECT id, name, generation, next_due, trigger, rules, next_reading
  FROM tenure_job
 WHERE application = :application AND state = 'active' AND next_due < :before
   AND function NOT IN (SELECT value FROM json_each(:strangers)) AND (:tzdata = '' OR tzdata <= :tzdata OR next_due < :overdue)
 ORDER BY next_due LIMIT :limit

-- name: resuming
SELECT id, name, generation, next_due, trigger, rules, next_reading
  FROM tenure_job
 WHERE application = :application AND state = 'paused' AND paused_until <= :now
   AND function NOT IN (SELECT value FROM json_each(:strangers)) AND (:tzdata = '' OR tzdata <= :tzdata OR paused_until < :overdue)
 ORDER BY paused_until LIMIT :limit

-- name: plannable
SELECT j.id, j.application
  FROM json_each(:planned) p
 CROSS JOIN tenure_job j ON j.id = json_extract(p.value, '$[0]')
 WHERE j.generation = json_extract(p.value, '$[1]') AND j.next_due = json_extract(p.value, '$[2]') AND j.state = 'active'

-- name: move_on
UPDATE tenure_job SET next_due = ?, next_reading = ? WHERE id = ?

-- name: alive
SELECT label FROM tenure_node WHERE id = :node AND state = 'alive'

-- name: due_lanes
-- INDEXED BY here and below: an application that runs ANALYZE must not talk SQLite into another way.
SELECT l.id
  FROM tenure_lane l
 WHERE l.application = :application AND (:functions IS NULL OR l.function IN (SELECT value FROM json_each(:functions)))
   AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))
   AND EXISTS (SELECT 1 FROM tenure_run r INDEXED BY tenure_run_due
                WHERE r.lane = l.id AND r.state = 'pending' AND r.due_at <= :now AND (r.expires_at IS NULL OR r.expires_at > :now))

-- name: due_in_lane
SELECT due_at, id FROM tenure_run INDEXED BY tenure_run_due
 WHERE lane = :lane AND state = 'pending' AND due_at <= :now AND (expires_at IS NULL OR expires_at > :now)
 ORDER BY due_at, id LIMIT :limit

-- name: expired
SELECT EXISTS (SELECT 1
                 FROM tenure_lane l
                CROSS JOIN tenure_run r INDEXED BY tenure_run_expires ON r.lane = l.id
                WHERE l.application = :application AND (:functions IS NULL OR l.function IN (SELECT value FROM json_each(:functions)))
                  AND r.state = 'pending' AND r.expires_at <= :now)

-- name: next_at
SELECT min((SELECT min(r.due_at) FROM tenure_run r INDEXED BY tenure_run_due WHERE r.lane = l.id AND r.state = 'pending' AND r.due_at > :now))
  FROM tenure_lane l
 WHERE l.application = :application AND (:functions IS NULL OR l.function IN (SELECT value FROM json_each(:functions)))
   AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))

-- name: released
-- Jobs of which runs wait though there are places.
SELECT w.job, j.rules, w.began
  FROM (SELECT d.job, (SELECT count(*) FROM tenure_run b INDEXED BY tenure_run_began
                        WHERE b.job = d.job AND (b.state = 'running' OR (b.state = 'pending' AND b.attempt > 0))) AS began
          FROM (SELECT DISTINCT r.job
                  FROM tenure_lane l
                 CROSS JOIN tenure_run r INDEXED BY tenure_run_waits ON r.lane = l.id
                 WHERE l.application = :application AND (:functions IS NULL OR l.function IN (SELECT value FROM json_each(:functions)))
                   AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))
                   AND r.state = 'waiting') d) w
 CROSS JOIN tenure_job j ON j.id = w.job
 WHERE j.state = 'active' AND (j.max_running IS NULL OR w.began < j.max_running)

-- name: waiting
SELECT id, kind, scheduled_for, due_at FROM tenure_run INDEXED BY tenure_run_waiting
 WHERE application = :application AND job = :job AND state = 'waiting' ORDER BY due_at, id LIMIT :limit

-- name: promote
UPDATE tenure_run SET state = 'pending', expires_at = NULL WHERE id = ?

-- name: candidates
SELECT r.id, r.job, r.key, r.kind, r.scheduled_for, r.due_at, r.attempt, r.failures, r.kwargs, j.generation,
       j.name, j.function, j.kwargs, j.rules, j.trigger, j.max_running,
       (SELECT count(*) FROM tenure_run b INDEXED BY tenure_run_began
         WHERE b.job = r.job AND (b.state = 'running' OR (b.state = 'pending' AND b.attempt > 0)))
  FROM json_each(:ids) i
 CROSS JOIN tenure_run r ON r.id = i.value
 CROSS JOIN tenure_job j ON j.id = r.job
 WHERE j.state = 'active'
 ORDER BY i.key

-- name: begin
UPDATE tenure_run
   SET state = 'running', token = ?, node = ?, label = ?, claimed_at = ?, generation = ?, attempt = attempt + 1,
       started_at = NULL, finished_at = NULL, reason = '', asked_to_end = ''
 WHERE id = ?

-- name: hold_back
UPDATE tenure_run SET state = 'waiting' WHERE id = ?

-- name: skip
UPDATE tenure_run SET state = 'skipped', reason = ?, finished_at = ? WHERE id = ?

-- name: fail
UPDATE tenure_run SET state = 'failed', reason = :reason, finished_at = :now WHERE id = :id

-- name: ask_to_end
UPDATE tenure_run INDEXED BY tenure_run_began SET asked_to_end = :why
 WHERE job = :job AND state = 'running' AND asked_to_end = ''

-- name: missed_jobs
SELECT DISTINCT j.id, j.name, j.generation, j.rules
  FROM tenure_lane l
 CROSS JOIN tenure_run r INDEXED BY tenure_run_expires ON r.lane = l.id
 CROSS JOIN tenure_job j ON j.id = r.job
 WHERE l.application = :application AND (:functions IS NULL OR l.function IN (SELECT value FROM json_each(:functions)))
   AND r.state = 'pending' AND r.expires_at <= :now AND j.state = 'active'
 LIMIT :limit

-- name: missed_runs
SELECT id, scheduled_for FROM tenure_run INDEXED BY tenure_run_open
 WHERE job = :job AND state = 'pending' AND expires_at <= :now ORDER BY scheduled_for LIMIT 1000

-- name: in_time
-- Also one that has begun, or is over: it was in time.
SELECT EXISTS (SELECT 1 FROM tenure_run INDEXED BY tenure_run_of_job
                WHERE job = :job AND scheduled_for > :after AND kind = 'due' AND due_at <= :now
                  AND state NOT IN ('skipped', 'cancelled') AND NOT (state = 'pending' AND expires_at IS NOT NULL AND expires_at <= :now))

-- name: still_missed
SELECT (SELECT count(*) FROM json_each(:ids) i CROSS JOIN tenure_run r ON r.id = i.value
         WHERE r.job = j.id AND r.state = 'pending' AND r.expires_at <= :now)
  FROM tenure_job j WHERE j.id = :job AND j.generation = :generation

-- name: make_up
UPDATE tenure_run SET kind = 'backfill', due_at = ?, expires_at = NULL WHERE id = ?

-- name: attempts
SELECT r.id, r.job, r.application, r.state, r.token, r.attempt, r.failures, r.losses, r.due_at, r.expires_at, r.asked_to_end,
       r.started_at, j.rules, j.state, r.kind, j.name, r.key, r.scheduled_for, r.node, r.interruptions, r.stopping
  FROM json_each(:ids) i
 CROSS JOIN tenure_run r ON r.id = i.value
 CROSS JOIN tenure_job j ON j.id = r.job

-- name: end
UPDATE tenure_run
   SET state = ?1, lane = CASE WHEN ?1 = 'pending' THEN (SELECT j.lane FROM tenure_job j WHERE j.id = tenure_run.job) ELSE lane END,
       attempt = ?2, failures = ?3, losses = ?4, due_at = ?5, expires_at = ?6, reason = ?7, started_at = ?8, finished_at = ?9,
       interruptions = ?11, stopping = 0, token = NULL, asked_to_end = '',
       label = CASE WHEN ?2 = 0 THEN '' ELSE label END, claimed_at = CASE WHEN ?2 = 0 THEN NULL ELSE claimed_at END
 WHERE id = ?10

-- name: wakes
-- Of these jobs, those of which a run waits that may begin now.
SELECT j.id
  FROM json_each(:jobs) i
 CROSS JOIN tenure_job j ON j.id = i.value
 WHERE j.state = 'active'
   AND EXISTS (SELECT 1 FROM tenure_run w INDEXED BY tenure_run_waiting
                WHERE w.application = j.application AND w.job = j.id AND w.state = 'waiting')
   AND (j.max_running IS NULL
        OR j.max_running > (SELECT count(*) FROM tenure_run b INDEXED BY tenure_run_began
                             WHERE b.job = j.id AND (b.state = 'running' OR (b.state = 'pending' AND b.attempt > 0))))

-- name: keep_log
INSERT OR IGNORE INTO tenure_log (run, began, place, line) SELECT r.id, ?2, ?3, ?4 FROM tenure_run r WHERE r.id = ?1

-- name: orphans
SELECT r.id
  FROM tenure_run r INDEXED BY tenure_run_running
 WHERE r.application = :application AND r.state = 'running'
   AND NOT EXISTS (SELECT 1 FROM tenure_node n WHERE n.id = r.node AND n.state = 'alive')

-- name: held
SELECT id, token, asked_to_end,
       started_at IS NULL AND EXISTS (SELECT 1 FROM tenure_job j WHERE j.id = tenure_run.job AND j.state <> 'active')
  FROM tenure_run INDEXED BY tenure_run_running
 WHERE application = :application AND state = 'running' AND node = :node ORDER BY id

-- name: unmarked
SELECT 1 FROM tenure_run INDEXED BY tenure_run_running
 WHERE application = :application AND state = 'running' AND node = :node AND stopping = 0 LIMIT 1

-- name: mark_stopping
UPDATE tenure_run INDEXED BY tenure_run_running SET stopping = 1
 WHERE application = :application AND state = 'running' AND node = :node AND stopping = 0

-- name: note_begun
UPDATE tenure_run SET started_at = ? WHERE id = ? AND token = ?

-- name: unbegun
-- A claim stamps its runs with the generation of the job: those of before were claimed before the change.
SELECT DISTINCT n.label, n.ttl
  FROM tenure_run r INDEXED BY tenure_run_began
 CROSS JOIN tenure_node n ON n.id = r.node
 WHERE r.job = :job AND r.state = 'running' AND r.started_at IS NULL AND r.generation < :generation AND n.state = 'alive'
   AND EXISTS (SELECT 1 FROM tenure_job j WHERE j.id = r.job AND j.state <> 'active')
 ORDER BY n.label

-- name: ask
INSERT INTO tenure_run (job, application, lane, key, kind, state, generation, scheduled_for, due_at, kwargs, by)
SELECT id, application, lane, :key, :kind, 'pending', generation, :scheduled_for, :now, :kwargs, :by
  FROM tenure_job WHERE application = :application AND name = :name AND state <> 'removed'
   AND (NOT :remembered OR kept_since <= :scheduled_for)
   AND NOT EXISTS (SELECT 1 FROM tenure_kept_key k WHERE k.job = tenure_job.id AND k.key = :key)
ON CONFLICT (job, key) DO NOTHING

-- name: kept_key
-- As a run, with nulls and zeros for what is not kept of it.
SELECT k.run, k.job, j.name, k.key, 'asked', k.state, k.scheduled_for, k.scheduled_for, 0, 0, 0, '', NULL, k.started_at, k.finished_at,
       '', 1, NULL, '', NULL, 0, 0, 0, k.digest
  FROM tenure_job j JOIN tenure_kept_key k ON k.job = j.id
 WHERE j.application = :application AND j.name = :name AND j.state <> 'removed' AND k.key = :key

-- name: asked_runs
SELECT r.job, r.key, r.application, r.id, r.state, r.scheduled_for, r.started_at, r.finished_at, r.kwargs
  FROM json_each(:ids) i CROSS JOIN tenure_run r ON r.id = i.value
 WHERE r.kind = 'asked' AND r.scheduled_for >= :keys_before

-- name: keep_key
INSERT INTO tenure_kept_key (job, key, application, run, state, scheduled_for, started_at, finished_at, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (job, key) DO NOTHING

-- name: old_keys
SELECT count(*) FROM (SELECT 1 FROM tenure_kept_key WHERE application = :application AND scheduled_for < :keys_before LIMIT :limit)

-- name: forget_keys
DELETE FROM tenure_kept_key
 WHERE (job, key) IN (SELECT job, key FROM tenure_kept_key
                       WHERE application = :application AND scheduled_for < :keys_before ORDER BY scheduled_for LIMIT :limit)

-- name: reopen
UPDATE tenure_run
   SET state = 'pending', lane = (SELECT lane FROM tenure_job j WHERE j.id = tenure_run.job), kind = 'backfill',
       generation = (SELECT generation FROM tenure_job j WHERE j.id = tenure_run.job), due_at = :now, expires_at = NULL, attempt = 0, failures = 0,
       losses = 0, interruptions = 0, stopping = 0, node = NULL, label = '', claimed_at = NULL, started_at = NULL, finished_at = NULL, reason = '', by = :by, kwargs = :kwargs
 WHERE id = :id

-- name: cancel
UPDATE tenure_run SET state = 'cancelled', reason = :why, finished_at = :now
 WHERE id = :id AND (state = 'pending' OR state = 'waiting')

-- name: ask_one_to_end
UPDATE tenure_run SET asked_to_end = :why WHERE id = :id AND state = 'running' AND asked_to_end = ''

-- name: application
SELECT application FROM tenure_run WHERE id = :id

-- name: run
SELECT r.id, r.job, j.name, r.key, r.kind, r.state, r.scheduled_for, r.due_at, r.attempt, r.failures, r.losses, r.label,
       r.claimed_at, r.started_at, r.finished_at, r.reason, r.count, r.until, r.by, r.kwargs, r.generation, r.interruptions, r.stopping
  FROM tenure_run r JOIN tenure_job j ON j.id = r.job WHERE r.id = :id

-- name: run_by_key
SELECT r.id, r.job, j.name, r.key, r.kind, r.state, r.scheduled_for, r.due_at, r.attempt, r.failures, r.losses, r.label,
       r.claimed_at, r.started_at, r.finished_at, r.reason, r.count, r.until, r.by, r.kwargs, r.generation, r.interruptions, r.stopping
  FROM tenure_job j JOIN tenure_run r ON r.job = j.id
 WHERE j.application = :application AND j.name = :name AND j.state <> 'removed' AND r.key = :key

-- name: final_states
-- From state to state: the file takes any word for one.
WITH RECURSIVE states (state) AS (
    SELECT min(state) FROM tenure_run INDEXED BY tenure_run_of_application
     WHERE application = :application AND state <> 'pending' AND state <> 'waiting' AND state <> 'running'
    UNION ALL
    SELECT (SELECT min(r.state) FROM tenure_run r INDEXED BY tenure_run_of_application
             WHERE r.application = :application AND r.state <> 'pending' AND r.state <> 'waiting' AND r.state <> 'running'
               AND r.state > states.state)
      FROM states WHERE states.state IS NOT NULL
)
SELECT state FROM states WHERE state IS NOT NULL

-- name: runs_in_state
-- Of one final state; they are put together in order by the caller.
SELECT r.id, r.job, j.name, r.key, r.kind, r.state, r.scheduled_for, r.due_at, r.attempt, r.failures, r.losses, r.label,
       r.claimed_at, r.started_at, r.finished_at, r.reason, r.count, r.until, r.by, r.kwargs, r.generation, r.interruptions, r.stopping
  FROM tenure_run r INDEXED BY tenure_run_of_application
 CROSS JOIN tenure_job j ON j.id = r.job
 WHERE r.application = :application AND r.state = :state AND r.state <> 'pending' AND r.state <> 'waiting' AND r.state <> 'running'
   AND r.scheduled_for >= :since AND r.scheduled_for < :before
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT :limit

-- name: runs_of_job
SELECT r.id, r.job, j.name, r.key, r.kind, r.state, r.scheduled_for, r.due_at, r.attempt, r.failures, r.losses, r.label,
       r.claimed_at, r.started_at, r.finished_at, r.reason, r.count, r.until, r.by, r.kwargs, r.generation, r.interruptions, r.stopping
  FROM tenure_job j
 CROSS JOIN tenure_run r INDEXED BY tenure_run_of_job ON r.job = j.id
 WHERE j.application = :application AND j.name = :job AND r.scheduled_for >= :since AND r.scheduled_for < :before
   AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT :limit

-- name: runs_reaching
-- Rows that stand for several due times, began before and reach into the span.
SELECT r.id, r.job, j.name, r.key, r.kind, r.state, r.scheduled_for, r.due_at, r.attempt, r.failures, r.losses, r.label,
       r.claimed_at, r.started_at, r.finished_at, r.reason, r.count, r.until, r.by, r.kwargs, r.generation, r.interruptions, r.stopping
  FROM tenure_job j
 CROSS JOIN tenure_run r INDEXED BY tenure_run_several ON r.job = j.id
 WHERE j.application = :application AND r.until >= :since AND r.scheduled_for < :since AND r.scheduled_for < :before
   AND (:id IS NULL OR r.id = :id) AND (:job IS NULL OR j.name = :job)
   AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT :limit

-- name: runs_by_id
SELECT r.id, r.job, j.name, r.key, r.kind, r.state, r.scheduled_for, r.due_at, r.attempt, r.failures, r.losses, r.label,
       r.claimed_at, r.started_at, r.finished_at, r.reason, r.count, r.until, r.by, r.kwargs, r.generation, r.interruptions, r.stopping
  FROM tenure_run r CROSS JOIN tenure_job j ON j.id = r.job
 WHERE r.id = :id AND r.application = :application AND (:job IS NULL OR j.name = :job)
   AND r.scheduled_for >= :since AND r.scheduled_for < :before
   AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))

-- name: runs_open
-- Few among many: by way of the jobs.
SELECT r.id, r.job, j.name, r.key, r.kind, r.state, r.scheduled_for, r.due_at, r.attempt, r.failures, r.losses, r.label,
       r.claimed_at, r.started_at, r.finished_at, r.reason, r.count, r.until, r.by, r.kwargs, r.generation, r.interruptions, r.stopping
  FROM tenure_job j
 CROSS JOIN tenure_run r INDEXED BY tenure_run_open ON r.job = j.id
 WHERE j.application = :application AND (:job IS NULL OR j.name = :job)
   AND (r.state = 'pending' OR r.state = 'waiting' OR r.state = 'running') AND r.state IN (SELECT value FROM json_each(:states))
   AND r.scheduled_for >= :since AND r.scheduled_for < :before
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT :limit

-- name: log
SELECT line FROM tenure_log WHERE run = :id ORDER BY began, place

-- name: last_runs
SELECT r.id, r.job, j.name, r.key, r.kind, r.state, r.scheduled_for, r.due_at, r.attempt, r.failures, r.losses, r.label,
       r.claimed_at, r.started_at, r.finished_at, r.reason, r.count, r.until, r.by, r.kwargs, r.generation, r.interruptions, r.stopping
  FROM tenure_job j
 CROSS JOIN tenure_run r INDEXED BY tenure_run_of_job ON r.job = j.id
 WHERE j.application = :application AND j.name = :name AND r.attempt > 0
 ORDER BY r.scheduled_for DESC, r.id DESC LIMIT :last

-- name: figures
SELECT r.state, r.due_at, r.started_at, r.finished_at
  FROM tenure_run r INDEXED BY tenure_run_of_job
 WHERE r.job = ? AND r.attempt > 0 ORDER BY r.scheduled_for DESC, r.id DESC LIMIT ?

-- name: triggers
SELECT j.id, j.trigger FROM json_each(:jobs) x CROSS JOIN tenure_job j ON j.id = x.value

-- name: tally_open
SELECT 'pending', '', count(*)
  FROM tenure_job j
 CROSS JOIN tenure_run r INDEXED BY tenure_run_open ON r.job = j.id
 WHERE j.application = :application AND (r.state = 'pending' OR r.state = 'waiting' OR r.state = 'running') AND r.state = 'pending'
   AND r.scheduled_for < :now
UNION ALL
SELECT 'waiting', '', count(*) FROM tenure_run INDEXED BY tenure_run_waiting WHERE application = :application AND state = 'waiting'
UNION ALL
SELECT 'running', label, count(*) FROM tenure_run INDEXED BY tenure_run_running WHERE application = :application AND state = 'running' GROUP BY label

-- name: tally_final
SELECT count(*)
  FROM (SELECT 1 FROM tenure_run INDEXED BY tenure_run_of_application
         WHERE application = :application AND state = :state AND state <> 'pending' AND state <> 'waiting' AND state <> 'running'
           AND scheduled_for >= :since LIMIT :limit)

-- name: past
-- The due times that ended as most do, in microseconds, by job and end.
SELECT r.job, r.state, group_concat(r.scheduled_for)
  FROM json_each(:jobs) x
 CROSS JOIN tenure_run r INDEXED BY tenure_run_of_job ON r.job = x.value
 WHERE r.scheduled_for >= :since AND r.scheduled_for < :before
   AND typeof(r.scheduled_for) = 'integer'
   AND r.kind = 'due' AND r.count = 1 AND r.until IS NULL AND r.state IN ('succeeded', 'failed', 'lost')
 GROUP BY r.job, r.state

-- name: past_others
SELECT r.id, r.job, j.name, r.key, r.kind, r.state, r.scheduled_for, r.due_at, r.attempt, r.failures, r.losses, r.label,
       r.claimed_at, r.started_at, r.finished_at, r.reason, r.count, r.until, r.by, r.kwargs, r.generation, r.interruptions, r.stopping
  FROM json_each(:jobs) x
 CROSS JOIN tenure_run r INDEXED BY tenure_run_of_job ON r.job = x.value
 CROSS JOIN tenure_job j ON j.id = r.job
 WHERE r.scheduled_for >= :since AND r.scheduled_for < :before
   AND NOT (typeof(r.scheduled_for) = 'integer' AND r.kind = 'due' AND r.count = 1 AND r.until IS NULL AND r.state IN ('succeeded', 'failed', 'lost'))

-- name: past_reaching
SELECT r.id, r.job, j.name, r.key, r.kind, r.state, r.scheduled_for, r.due_at, r.attempt, r.failures, r.losses, r.label,
       r.claimed_at, r.started_at, r.finished_at, r.reason, r.count, r.until, r.by, r.kwargs, r.generation, r.interruptions, r.stopping
  FROM json_each(:jobs) x
 CROSS JOIN tenure_job j ON j.id = x.value
 CROSS JOIN tenure_run r INDEXED BY tenure_run_several ON r.job = j.id
 WHERE r.until >= :since AND r.until IS NOT NULL AND r.scheduled_for < :since AND r.scheduled_for < :before

-- name: page
SELECT id FROM tenure_job WHERE id > :beyond AND application = :application ORDER BY id LIMIT :jobs

-- name: prunable
-- Jobs with something old enough, and up to where it may be removed: not the newest, nothing at or after what is open. Of a job that is over
-- nothing is kept.
SELECT j.id,
       min(:before,
           CASE WHEN j.over THEN :before ELSE
           coalesce((SELECT scheduled_for FROM tenure_run INDEXED BY tenure_run_of_job
                      WHERE job = j.id AND state NOT IN ('pending', 'waiting', 'running') AND :keep > 0
                      ORDER BY scheduled_for DESC LIMIT 1 OFFSET :keep - 1),
                    CASE WHEN :keep > 0 THEN :nothing ELSE :before END) END,
           coalesce((SELECT min(scheduled_for) FROM tenure_run INDEXED BY tenure_run_open
                      WHERE job = j.id AND (state = 'pending' OR state = 'waiting' OR state = 'running')), :before)),
       j.over
  FROM (SELECT id, (state = 'removed' OR (state = 'active' AND next_due IS NULL AND trigger IS NOT NULL))
                   AND defined_at < :before AND since < :before AND coalesce(removed_at, 0) < :before AS over
          FROM tenure_job WHERE id BETWEEN :low AND :high AND application = :application) j
 WHERE EXISTS (SELECT 1 FROM tenure_run r INDEXED BY tenure_run_of_job WHERE r.job = j.id AND r.scheduled_for < :before)

-- name: oldest
SELECT id, coalesce(until, scheduled_for) FROM tenure_run INDEXED BY tenure_run_of_job
 WHERE job = :job AND scheduled_for < :before AND coalesce(until, scheduled_for) < :before AND coalesce(finished_at, 0) < :finished_before
 ORDER BY scheduled_for, id LIMIT :limit

-- name: forget_log
DELETE FROM tenure_log WHERE run = ?

-- name: forget_run
DELETE FROM tenure_run WHERE id = ?

-- name: keep_since
UPDATE tenure_job SET kept_since = max(kept_since, ?) WHERE id = ?

-- name: last_generation
-- Of jobs whose rows were deleted.
SELECT coalesce(max(generation), 0) FROM tenure_forgotten WHERE application = :application

-- name: live_code
SELECT id FROM tenure_job INDEXED BY tenure_job_over
 WHERE application = :application AND (state = 'removed' OR (state = 'active' AND next_due IS NULL AND trigger IS NOT NULL))
   AND defined_at < :seen_before AND (in_code OR override IS NOT NULL)
   AND coalesce(CASE WHEN json_valid(override) THEN json_extract(override, '$.code.function') END, function) IN (SELECT value FROM json_each(:defined))

-- name: forgettable
SELECT j.id, j.generation FROM tenure_job j INDEXED BY tenure_job_over
 WHERE j.application = :application AND (j.state = 'removed' OR (j.state = 'active' AND j.next_due IS NULL AND j.trigger IS NOT NULL))
   AND j.defined_at < :before AND j.since < :before AND coalesce(j.removed_at, 0) < :before
   AND NOT ((j.in_code OR j.override IS NOT NULL)
            AND coalesce(CASE WHEN json_valid(j.override) THEN json_extract(j.override, '$.code.function') END, j.function)
                IN (SELECT value FROM json_each(:defined)))
   AND NOT EXISTS (SELECT 1 FROM tenure_run r WHERE r.job = j.id)
   AND NOT EXISTS (SELECT 1 FROM tenure_kept_key k WHERE k.job = j.id)
 ORDER BY j.defined_at LIMIT :limit

-- name: forget_changes
DELETE FROM tenure_change WHERE id IN (SELECT c.id FROM json_each(:jobs) j CROSS JOIN tenure_change c ON c.job = j.value LIMIT :rows)

-- name: with_changes
SELECT j.value FROM json_each(:jobs) j WHERE EXISTS (SELECT 1 FROM tenure_change c WHERE c.job = j.value)

-- name: forget_job
DELETE FROM tenure_job WHERE id = ?

-- name: note_forgotten
INSERT INTO tenure_forgotten (application, kept_since, generation) VALUES (:application, :before, :generation)
ON CONFLICT (application) DO UPDATE
   SET kept_since = max(kept_since, excluded.kept_since), generation = max(generation, excluded.generation)

-- name: guarded
SELECT at FROM tenure_guard WHERE name = :name AND key = :key

-- name: guard
INSERT INTO tenure_guard (name, key, at, by, until) VALUES (:name, :key, :now, :by, :until)
ON CONFLICT (name, key) DO UPDATE
   SET at = excluded.at, by = excluded.by, until = CASE WHEN tenure_guard.until IS NOT NULL THEN excluded.until END   -- for ever stays so
 WHERE tenure_guard.at <= :before

-- name: unguard
DELETE FROM tenure_guard WHERE name = :name AND key = :key AND by = :by
