-- Statements about nodes, elections, terms and epochs.

-- name: join
-- Enter a node.
INSERT INTO {schema}.node (id, ttl, label, host) VALUES (%(id)s, %(ttl)s, %(label)s, %(host)s) ON CONFLICT DO NOTHING

-- name: beat
-- Renew a node's lease and read, in one round trip, all that it needs to know. The row is the node's right to act.
-- `seq < number` makes a late or reordered beat change nothing. The sub-selects all see the same moment, the one
-- before the update. So the list of live nodes also says what this node had counted, and whether a holder is alive,
-- without a join. Text in an array costs both sides half of what JSON costs.
UPDATE {schema}.node
   SET seq = %(number)s, renewed_at = clock_timestamp(), session_nonce = %(nonce)s, session_grace = %(grace)s
 WHERE id = %(node)s AND state = 'alive' AND seq < %(number)s
RETURNING extract(epoch FROM clock_timestamp())::float8,
       (SELECT x.number FROM {schema}.epoch x),
       (SELECT array_agg(concat_ws(' ', n.id, n.seq, n.ttl, n.session_nonce, n.session_grace))   -- without NULLs
          FROM {schema}.node n
         WHERE n.state = 'alive'),
       (SELECT array_agg(concat_ws(' ', e.term, coalesce(e.holder::text, '-'), e.state,
                                   coalesce(e.asked_term = e.term, false), e.name))
          FROM {schema}.election e
         WHERE e.name = ANY (%(names)s::text[]) OR (e.holder = %(node)s AND e.state = 'held'))

-- name: is_alive
-- Whether a node may still act.
SELECT 1 FROM {schema}.node WHERE id = %(node)s AND state = 'alive'

-- name: cards
-- Labels and hosts of live nodes.
SELECT id::text, label, ttl, host FROM {schema}.node WHERE id = ANY (%(ids)s::uuid[]) AND state = 'alive'

-- name: declare
-- Declare a node dead.
SELECT {schema}.declare_dead(%(dead)s, %(seq)s, %(why)s)

-- name: leave
-- Remove a node that stops in good order, and release what it holds.
SELECT {schema}.leave(%(node)s, %(why)s)

-- name: sweep
-- Delete nodes that ended a week ago. Without a row a node counts as dead, as it does with one that is not alive.
DELETE FROM {schema}.node n
 WHERE n.state <> 'alive' AND n.ended_at < clock_timestamp() - interval '7 days'
   AND NOT EXISTS (SELECT FROM {schema}.election e WHERE e.holder = n.id)

-- name: sweep_functions
-- Delete sets of functions that no node refers to.
SELECT {schema}.sweep_functions()

-- name: acquire
-- Request a term.
SELECT outcome, granted, current_holder, detail
  FROM {schema}.acquire(%(node)s, %(name)s, %(mode)s, %(fenced)s, %(term)s, %(holder)s, %(seq)s, %(nonce)s)

-- name: succeed
-- Declare a leader dead and request its term, in one transaction. This saves one round trip and one flush between a
-- leader's death and its successor, who has the term before the others wake. The candidate comes from the
-- declaration's row, so that the declaration runs first.
SELECT dead.declared, a.outcome, a.granted, a.current_holder, a.detail
  FROM (SELECT {schema}.declare_dead(%(dead)s, NULL, %(why)s) AS declared, %(node)s::uuid AS candidate OFFSET 0) dead,
       LATERAL {schema}.acquire(dead.candidate, %(name)s, %(mode)s, %(fenced)s, %(term)s, %(holder)s, %(seq)s,
                                %(nonce)s) a

-- name: release
-- Give a term up.
SELECT {schema}.release(%(node)s, %(name)s, %(term)s, %(why)s)

-- name: ask
-- Request that the holder of an election resigns.
UPDATE {schema}.election SET asked_term = term WHERE name = %(name)s AND state = 'held'
RETURNING term, pg_notify(%(channel)s, '?' || name),
          {schema}.note_action(%(application)s, name, NULL, %(action)s::jsonb)

-- name: lock_session
-- Take the advisory lock that proves that this node's session lives.
SELECT pg_advisory_lock({schema}.session_key(%(node)s, %(nonce)s)), pg_backend_pid()

-- name: validate
-- Check that this session still holds its lock, and find the holders whose locks are free.
-- The probes are shared and end with the statement: they disturb no other session and pin no snapshot.
SELECT pg_backend_pid() = %(pid)s
       AND EXISTS (SELECT FROM pg_locks l
                    WHERE l.locktype = 'advisory' AND l.granted AND l.pid = pg_backend_pid() AND l.objsubid = 1
                      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                      AND (l.classid::bigint << 32) | l.objid::bigint = {schema}.session_key(%(node)s, %(nonce)s)),
       (SELECT json_agg(json_build_array(s.name, s.term, s.holder, s.seq, s.nonce, s.grace))
          FROM (SELECT e.name, e.term, e.holder, h.seq, h.session_nonce AS nonce, h.session_grace AS grace
                  FROM {schema}.election e JOIN {schema}.node h ON h.id = e.holder
                 WHERE e.name = ANY (%(names)s::text[]) AND e.state = 'held' AND h.state = 'alive' AND h.id <> %(node)s
                   AND h.session_nonce IS NOT NULL
                OFFSET 0) s
         WHERE pg_try_advisory_xact_lock_shared({schema}.session_key(s.holder, s.nonce)))

-- name: keep_alive
-- Show the server that this session lives.
SELECT 1

-- name: leader
-- The holder of one election.
SELECT e.name, e.term, e.holder::text, coalesce(n.label, ''), e.granted_at,
       coalesce(n.state = 'alive' AND clock_timestamp() - n.renewed_at < make_interval(secs => n.ttl), false)
  FROM {schema}.election e LEFT JOIN {schema}.node n ON n.id = e.holder
 WHERE e.name = %(name)s AND e.state = 'held'

-- name: elections
-- The holders of all elections.
SELECT e.name, e.term, e.holder::text, coalesce(n.label, ''), e.granted_at,
       coalesce(n.state = 'alive' AND clock_timestamp() - n.renewed_at < make_interval(secs => n.ttl), false)
  FROM {schema}.election e LEFT JOIN {schema}.node n ON n.id = e.holder
 WHERE e.state = 'held' ORDER BY e.name

-- name: terms
-- The history of all elections, newest first.
SELECT election, number, node::text, label, began_at, began_by, ended_at, ended_by, gap
  FROM {schema}.term
 ORDER BY began_at DESC, number DESC LIMIT %(limit)s

-- name: terms_of
-- The history of one election, newest first.
SELECT election, number, node::text, label, began_at, began_by, ended_at, ended_by, gap
  FROM {schema}.term WHERE election = %(name)s
 ORDER BY number DESC LIMIT %(limit)s

-- name: recent_terms
-- The newest terms of each of the elections after a name.
SELECT t.election, t.number, t.node::text, t.label, t.began_at, t.began_by, t.ended_at, t.ended_by, t.gap
  FROM (SELECT name FROM {schema}.election WHERE name > %(after)s ORDER BY name LIMIT %(elections)s) e
 CROSS JOIN LATERAL (SELECT x.* FROM {schema}.term x WHERE x.election = e.name
                      ORDER BY x.number DESC LIMIT %(each)s) t
 ORDER BY t.election, t.number DESC

-- name: node_records
-- The nodes that are alive, and those that ended last.
(SELECT id::text, label, state, ttl, joined_at, renewed_at, ended_at, coalesce(ended_by, '')
   FROM {schema}.node WHERE state = 'alive' ORDER BY label COLLATE "C", id)
UNION ALL
(SELECT id::text, label, state, ttl, joined_at, renewed_at, ended_at, coalesce(ended_by, '')
   FROM {schema}.node WHERE state <> 'alive' ORDER BY ended_at DESC NULLS LAST, id LIMIT %(ended)s)

-- name: epoch
-- The epoch, the server it was written for, and the server that this is.
SELECT e.number, e.max_ttl, e.system_identifier, e.timeline, e.database, e.relation,
       h.system_identifier, h.timeline, h.database, h.relation
  FROM {schema}.epoch e, {schema}.server_identity() h

-- name: unsettle
-- Stop all grants until the epoch is raised: for a restore that leaves no trace in the server's identity.
UPDATE {schema}.epoch SET timeline = -1 WHERE number = %(number)s

-- name: raise_epoch
-- Begin a new epoch on the server that was observed, unless another node has done so.
UPDATE {schema}.epoch e
   SET number = greatest(e.number + 1, extract(epoch FROM clock_timestamp())::bigint),
       system_identifier = h.system_identifier, timeline = h.timeline, database = h.database, relation = h.relation
  FROM {schema}.server_identity() h
 WHERE e.number = %(number)s
   AND (e.system_identifier, e.timeline, e.database, e.relation)
     = (%(r_system)s, %(r_timeline)s, %(r_database)s, %(r_relation)s)
   AND (h.system_identifier, h.timeline, h.database, h.relation)
     = (%(a_system)s, %(a_timeline)s, %(a_database)s, %(a_relation)s)
RETURNING e.number
