-- Statements of elections in advisory mode, where an advisory lock decides and the term's row records.

-- name: election_mode
-- The mode in which an election was created.
SELECT mode FROM {schema}.election WHERE name = %(name)s

-- name: set_socket
-- Let the server notice soon that the client's host is gone. Changes nothing on a Unix socket.
SELECT set_config('tcp_keepalives_idle', %(tcp_keepalives_idle)s, false),
       set_config('tcp_keepalives_interval', %(tcp_keepalives_interval)s, false),
       set_config('tcp_keepalives_count', %(tcp_keepalives_count)s, false),
       set_config('tcp_user_timeout', %(tcp_user_timeout)s, false)

-- name: lock_election
-- Try to take the lock of an election.
SELECT pg_try_advisory_lock(%(key)s::bigint)

-- name: holds_election
-- Check that this session holds the lock of an election. The backend is the one that took it (no pooler in between),
-- and the lock exists in this database: a session of another database may have taken the same key.
SELECT pg_backend_pid() = %(pid)s::int
       AND EXISTS (SELECT FROM pg_locks l
                    WHERE l.locktype = 'advisory' AND l.granted AND l.pid = pg_backend_pid() AND l.objsubid = 1
                      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                      AND (l.classid::bigint << 32) | l.objid::bigint = %(key)s::bigint)

-- name: unlock_election
-- Give the lock of an election back.
SELECT pg_advisory_unlock(%(key)s::bigint)

-- name: give_back
-- Release a term together with its lock. The lock is free before the commit and the notice comes after it, so no
-- candidate wakes too early.
SELECT {schema}.release(%(node)s, %(name)s, %(term)s, %(why)s), pg_advisory_unlock(%(key)s::bigint)

-- name: evict
-- End the sessions of dead nodes that still hold the lock of an election. Such a session is known by its other lock,
-- that of its node and nonce. Only a node that was declared dead, or has left, loses its session: a successor that
-- has the lock by now is alive. No stored time decides.
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
-- Sessions that hold the lock of an election but not that of a live node. Every role that may connect can take either.
SELECT l.pid, coalesce(a.usename::text, '?')
  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND (l.classid::bigint << 32) | l.objid::bigint = %(key)s::bigint
   AND NOT EXISTS (SELECT FROM pg_locks own
                     JOIN {schema}.node n ON n.state = 'alive' AND n.session_nonce IS NOT NULL
                                         AND {schema}.session_key(n.id, n.session_nonce)
                                           = (own.classid::bigint << 32) | own.objid::bigint
                    WHERE own.pid = l.pid AND own.database = l.database
                      AND own.locktype = 'advisory' AND own.granted AND own.objsubid = 1)
