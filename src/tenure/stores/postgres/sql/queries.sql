-- name: beat
-- The row is the node's right to act. `seq < number` makes a late or reordered beat change nothing. One round trip brings all that a
-- node needs to know; the sub-selects see the moment before the update, all the same one. So the list of live nodes also says what
-- this node had counted, and whether a holder is alive: no join is needed for that. Words in an array cost both sides half of JSON.
UPDATE {schema}.node
   SET seq = %(number)s, renewed_at = clock_timestamp(), session_nonce = %(nonce)s, session_grace = %(grace)s
 WHERE id = %(node)s AND state = 'alive' AND seq < %(number)s
RETURNING extract(epoch FROM clock_timestamp())::float8,
       (SELECT x.number FROM {schema}.epoch x),
       (SELECT array_agg(concat_ws(' ', n.id, n.seq, n.ttl, n.session_nonce, n.session_grace))   -- the last two only where there are any
          FROM {schema}.node n
         WHERE n.state = 'alive'),
       (SELECT array_agg(concat_ws(' ', e.term, coalesce(e.holder::text, '-'), e.state, coalesce(e.asked_term = e.term, false), e.name))
          FROM {schema}.election e
         WHERE e.name = ANY (%(names)s::text[]) OR (e.holder = %(node)s AND e.state = 'held'))

-- name: is_alive
SELECT 1 FROM {schema}.node WHERE id = %(node)s AND state = 'alive'

-- name: join
INSERT INTO {schema}.node (id, ttl, label, host) VALUES (%(id)s, %(ttl)s, %(label)s, %(host)s) ON CONFLICT DO NOTHING

-- name: acquire
SELECT outcome, granted, current_holder, detail
  FROM {schema}.acquire(%(node)s, %(name)s, %(mode)s, %(fenced)s, %(term)s, %(holder)s, %(seq)s, %(nonce)s)

-- name: succeed
-- `declare` and `acquire` in one transaction: one round trip and one flush less between a leader's death and its successor, who is
-- there before the others wake. The candidate is taken from the declaration's row, so that the declaration comes first.
SELECT dead.declared, a.outcome, a.granted, a.current_holder, a.detail
  FROM (SELECT {schema}.declare_dead(%(dead)s, NULL, %(why)s) AS declared, %(node)s::uuid AS candidate OFFSET 0) dead,
       LATERAL {schema}.acquire(dead.candidate, %(name)s, %(mode)s, %(fenced)s, %(term)s, %(holder)s, %(seq)s, %(nonce)s) a

-- name: release
SELECT {schema}.release(%(node)s, %(name)s, %(term)s, %(why)s)

-- name: declare
SELECT {schema}.declare_dead(%(dead)s, %(seq)s, %(why)s)

-- name: leave
SELECT {schema}.leave(%(node)s, %(why)s)

-- name: cards
SELECT id::text, label, ttl, host FROM {schema}.node WHERE id = ANY (%(ids)s::uuid[]) AND state = 'alive'

-- name: lock_session
SELECT pg_advisory_lock({schema}.session_key(%(node)s, %(nonce)s)), pg_backend_pid()

-- name: validate
-- The session still is the one that took the lock, the lock is still there, and which holders' locks are free. The probes are shared
-- and end with the statement: they disturb nobody and pin no snapshot.
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

-- name: ask
UPDATE {schema}.election SET asked_term = term WHERE name = %(name)s AND state = 'held' RETURNING term, pg_notify(%(channel)s, '?' || name)

-- name: leader
SELECT e.name, e.term, e.holder::text, coalesce(n.label, ''), e.granted_at,
       coalesce(n.state = 'alive' AND clock_timestamp() - n.renewed_at < make_interval(secs => n.ttl), false)
  FROM {schema}.election e LEFT JOIN {schema}.node n ON n.id = e.holder
 WHERE e.name = %(name)s AND e.state = 'held'

-- name: elections
SELECT e.name, e.term, e.holder::text, coalesce(n.label, ''), e.granted_at,
       coalesce(n.state = 'alive' AND clock_timestamp() - n.renewed_at < make_interval(secs => n.ttl), false)
  FROM {schema}.election e LEFT JOIN {schema}.node n ON n.id = e.holder
 WHERE e.state = 'held' ORDER BY e.name

-- name: terms
SELECT election, number, node::text, label, began_at, began_by, ended_at, ended_by, gap
  FROM {schema}.term
 WHERE %(name)s::text IS NULL OR election = %(name)s
 ORDER BY began_at DESC, number DESC LIMIT %(limit)s

-- name: epoch
SELECT e.number, e.max_ttl, e.system_identifier, e.timeline, e.database, e.relation, h.system_identifier, h.timeline, h.database, h.relation
  FROM {schema}.epoch e, {schema}.here() h

-- name: unsettle
-- Grants stop everywhere until the epoch is raised: for a restore that leaves no trace in the server's identity.
UPDATE {schema}.epoch SET timeline = -1 WHERE number = %(number)s

-- name: raise_epoch
UPDATE {schema}.epoch e
   SET number = greatest(e.number + 1, extract(epoch FROM clock_timestamp())::bigint),
       system_identifier = h.system_identifier, timeline = h.timeline, database = h.database, relation = h.relation
  FROM {schema}.here() h
 WHERE e.number = %(number)s
   AND (e.system_identifier, e.timeline, e.database, e.relation) = (%(r_system)s, %(r_timeline)s, %(r_database)s, %(r_relation)s)
   AND (h.system_identifier, h.timeline, h.database, h.relation) = (%(a_system)s, %(a_timeline)s, %(a_database)s, %(a_relation)s)
RETURNING e.number

-- name: sweep
-- A row that is not alive says no more than no row: both mean dead. Nobody needs it after a week.
DELETE FROM {schema}.node n
 WHERE n.state <> 'alive' AND n.ended_at < clock_timestamp() - interval '7 days'
   AND NOT EXISTS (SELECT FROM {schema}.election e WHERE e.holder = n.id)

-- name: sweep_functions
SELECT {schema}.sweep_functions()

-- name: sweep_guards
-- A day later than it could: while `within` of a key is being changed, some may still ask for a longer span.
DELETE FROM {schema}.guard g
 WHERE (g.name, g.key) IN (SELECT o.name, o.key FROM {schema}.guard o WHERE o.until < clock_timestamp() - interval '1 day'
                            ORDER BY o.until LIMIT 10000 FOR UPDATE SKIP LOCKED)

-- name: schema_version
SELECT version, oldest FROM {schema}.schema_version

-- name: fence
SELECT {schema}.fence(%(name)s, %(term)s, %(holder)s)

-- name: election_mode
SELECT mode FROM {schema}.election WHERE name = %(name)s

-- name: set_socket
-- Where the server listens on a Unix socket these change nothing.
SELECT set_config('tcp_keepalives_idle', %(tcp_keepalives_idle)s, false),
       set_config('tcp_keepalives_interval', %(tcp_keepalives_interval)s, false),
       set_config('tcp_keepalives_count', %(tcp_keepalives_count)s, false),
       set_config('tcp_user_timeout', %(tcp_user_timeout)s, false)

-- name: lock_election
SELECT pg_try_advisory_lock(%(key)s::bigint)

-- name: holds_election
-- The backend is the one that took the lock (no pooler in between), and the lock is there, in this database: the same key may be
-- taken in another.
SELECT pg_backend_pid() = %(pid)s::int
       AND EXISTS (SELECT FROM pg_locks l
                    WHERE l.locktype = 'advisory' AND l.granted AND l.pid = pg_backend_pid() AND l.objsubid = 1
                      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                      AND (l.classid::bigint << 32) | l.objid::bigint = %(key)s::bigint)

-- name: unlock_election
SELECT pg_advisory_unlock(%(key)s::bigint)

-- name: give_back
-- The lock is free before the commit, and the notice is delivered after it: nobody wakes too early.
SELECT {schema}.release(%(node)s, %(name)s, %(term)s, %(why)s), pg_advisory_unlock(%(key)s::bigint)

-- name: evict
-- Whose backend it is that has the lock is told by the other lock it holds, that of its node and nonce. Only a node that was declared
-- dead, or has left, loses its session: a successor that has the lock by now is alive. Never by a stored time.
SELECT n.label, l.pid, pg_terminate_backend(l.pid)
  FROM pg_locks l
  JOIN pg_locks own ON own.pid = l.pid AND own.database = l.database
                   AND own.locktype = 'advisory' AND own.granted AND own.objsubid = 1
  JOIN {schema}.node n ON n.state <> 'alive' AND n.session_nonce IS NOT NULL
                      AND {schema}.session_key(n.id, n.session_nonce) = (own.classid::bigint << 32) | own.objid::bigint
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND (l.classid::bigint << 32) | l.objid::bigint = %(key)s::bigint

-- name: strangers
-- Sessions that have the lock of the election and not that of a live node. Anybody who may connect may take either.
SELECT l.pid, coalesce(a.usename::text, '?')
  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND (l.classid::bigint << 32) | l.objid::bigint = %(key)s::bigint
   AND NOT EXISTS (SELECT FROM pg_locks own
                     JOIN {schema}.node n ON n.state = 'alive' AND n.session_nonce IS NOT NULL
                                         AND {schema}.session_key(n.id, n.session_nonce) = (own.classid::bigint << 32) | own.objid::bigint
                    WHERE own.pid = l.pid AND own.database = l.database
                      AND own.locktype = 'advisory' AND own.granted AND own.objsubid = 1)

-- name: migrators
SELECT l.pid, coalesce(a.usename::text, '?')
  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended('tenure migrate {schema}', 0)

-- name: schema_owner
-- Who owns the schema, and whether the role that migrates can trust it: the owner could replace functions in it. A superuser is a member
-- of every role, which says nothing.
SELECT o.rolname::text,
       o.oid = me.oid OR o.rolsuper OR o.oid = d.datdba OR o.rolname = 'pg_database_owner'
       OR (NOT me.rolsuper AND pg_has_role(o.oid, 'USAGE'))
  FROM pg_namespace n
  JOIN pg_roles o ON o.oid = n.nspowner
  JOIN pg_roles me ON me.rolname = current_user
  JOIN pg_database d ON d.datname = current_database()
 WHERE n.nspname = '{schema}'

-- name: keep_alive
SELECT 1
