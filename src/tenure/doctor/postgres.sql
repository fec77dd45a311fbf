-- name: server
-- Settings and limits of the server. Sent outside our read-only transactions, to see what every other session of this
-- role gets.
SELECT current_setting('server_version_num')::int AS number,
       current_setting('server_version') AS version,
       current_setting('server_encoding') AS encoding,
       pg_is_in_recovery() AS recovering,
       current_setting('transaction_read_only') = 'on' AS read_only,
       (SELECT s.source FROM pg_settings s WHERE s.name = 'default_transaction_read_only') AS read_only_from,
       current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       (SELECT s.source FROM pg_settings s WHERE s.name = 'synchronous_commit') AS synchronous_commit_from,
       current_setting('max_connections')::int AS max_connections,
       current_setting('superuser_reserved_connections')::int
           + coalesce(current_setting('reserved_connections', true), '0')::int AS reserved,
       (SELECT sum(d.numbackends) FROM pg_stat_database d)::int AS used,
       r.rolconnlimit AS role_limit,
       (SELECT count(*) FROM pg_stat_activity a WHERE a.usesysid = r.oid)::int AS role_used,
       current_setting('max_prepared_transactions')::int AS max_prepared,
       extract(epoch FROM clock_timestamp())::float8 AS time,
       r.rolname AS role,
       current_database() AS database,
       r.rolsuper OR pg_has_role('pg_read_all_stats', 'USAGE') AS sees_all,
       r.rolsuper AS superuser,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       pg_backend_pid() AS pid
  FROM pg_roles r
 WHERE r.rolname = current_user

-- name: schema
-- Rights on the schema and its owner. `others` own tables or functions in it, which the owner could replace.
SELECT has_schema_privilege(n.oid, 'USAGE') AS may_use, has_schema_privilege(n.oid, 'CREATE') AS may_create,
       pg_get_userbyid(n.nspowner) AS owner,
       CASE WHEN NOT (SELECT o.rolsuper OR o.oid = d.datdba OR o.rolname = 'pg_database_owner'
                        FROM pg_roles o JOIN pg_database d ON d.datname = current_database() WHERE o.oid = n.nspowner)
            THEN ARRAY(SELECT pg_get_userbyid(c.relowner) FROM pg_class c
                        WHERE c.relnamespace = n.oid AND c.relowner <> n.nspowner
                       UNION
                       SELECT pg_get_userbyid(p.proowner) FROM pg_proc p
                        WHERE p.pronamespace = n.oid AND p.proowner <> n.nspowner)
            ELSE '{}' END::text[] AS others
  FROM pg_namespace n
 WHERE n.nspname = %(schema)s

-- name: tables
-- The tables of the schema, and what this role may do to each.
SELECT c.relname AS name, c.relpersistence = 'u' AS unlogged,
       ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p
              WHERE has_table_privilege(c.oid, p)) AS may
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p')
 ORDER BY c.relname

-- name: functions
-- The functions of the schema, and whether this role may call them.
SELECT p.proname || '(' || oidvectortypes(p.proargtypes) || ')' AS signature,
       has_function_privilege(p.oid, 'EXECUTE') AS may
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = %(schema)s
 ORDER BY 1

-- name: locks
-- Locks on our tables, and waits for them. pg_locks does not show row locks, but the table lock that comes with them
-- and the wait for another transaction.
SELECT c.relname AS relation, l.mode, l.granted, l.pid, a.usename AS role, a.application_name AS application,
       host(a.client_addr) AS client, a.state, a.xact_start AS since, a.query_start AS statement_since, a.query,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS age,
       extract(epoch FROM clock_timestamp() - a.state_change)::float8 AS still,
       p.gid, p.owner, p.prepared,
       CASE WHEN NOT l.granted THEN pg_blocking_pids(l.pid) ELSE '{}' END AS waits_for
  FROM pg_locks l
  LEFT JOIN pg_class c ON c.oid = l.relation
  LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  -- A prepared transaction has no process; the lock on its own number identifies it.
  LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock'
                      AND x.virtualtransaction = l.virtualtransaction
  LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
 WHERE l.pid IS DISTINCT FROM pg_backend_pid()
   AND (n.nspname = %(schema)s AND c.relkind IN ('r', 'p')
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        OR l.locktype IN ('transactionid', 'tuple') AND NOT l.granted
           AND l.pid IN (SELECT o.pid FROM pg_locks o JOIN pg_class oc ON oc.oid = o.relation
                           JOIN pg_namespace ons ON ons.oid = oc.relnamespace
                          WHERE ons.nspname = %(schema)s
                            AND o.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())))
 ORDER BY l.granted DESC, l.pid, c.relname, l.mode

-- name: snapshots
-- Snapshots that keep vacuum from this database's tables. The xmin of a slot concerns rows; `catalog_xmin` does not
-- matter.
SELECT CASE WHEN a.backend_type = 'walsender' THEN 'standby' ELSE 'session' END AS kind,
       NULL::text AS name, NULL::boolean AS active,
       a.pid, a.usename::text AS role, a.application_name AS application, a.state,
       greatest(age(a.backend_xmin), 0)::bigint AS transactions,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS age
  FROM pg_stat_activity a
 WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND coalesce(a.application_name, '') <> 'tenure:doctor'
   AND (a.datname = current_database() AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
        OR a.backend_type = 'walsender')
UNION ALL
SELECT 'prepared', p.gid, NULL, NULL, p.owner::text, NULL, NULL, greatest(age(p.transaction), 0),
       extract(epoch FROM clock_timestamp() - p.prepared)::float8
  FROM pg_prepared_xacts p WHERE p.database = current_database()
UNION ALL
SELECT 'slot', s.slot_name::text, s.active, NULL, NULL, NULL, NULL, greatest(age(s.xmin), 0), NULL
  FROM pg_replication_slots s WHERE s.xmin IS NOT NULL
 ORDER BY 8 DESC

-- name: dead
-- Dead and live rows of the tables that are written most.
SELECT s.relname AS name, s.n_dead_tup AS dead, s.n_live_tup AS live
  FROM pg_stat_user_tables s WHERE s.schemaname = %(schema)s AND s.relname IN ('run', 'job') ORDER BY 1

-- name: prepared
-- Prepared transactions of this database.
SELECT p.gid, p.owner, p.prepared FROM pg_prepared_xacts p WHERE p.database = current_database() ORDER BY p.prepared

-- name: advisory
-- Exclusive advisory locks with one 64-bit key in this database: those of sessions whose application_name is ours, and
-- those whose key is a node's or an election's.
SELECT l.pid, (l.classid::bigint << 32) | l.objid::bigint AS key, l.granted, a.usename AS role,
       a.application_name AS application, host(a.client_addr) AS client, a.state, a.backend_start AS since,
       k.label, k.state AS node_state
  FROM pg_locks l
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN (SELECT n.label, n.state, {schema}.session_key(n.id, n.session_nonce) AS key
               FROM {schema}.node n WHERE n.session_nonce IS NOT NULL) k
         ON k.key = (l.classid::bigint << 32) | l.objid::bigint
 WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ExclusiveLock'
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND l.pid <> pg_backend_pid()
   AND (k.key IS NOT NULL OR a.application_name LIKE 'tenure:%%'
        OR (l.classid::bigint << 32) | l.objid::bigint = ANY (%(elections)s::bigint[]))
   AND (l.classid::bigint << 32) | l.objid::bigint <> hashtextextended('tenure migrate {schema}', 0)
 ORDER BY l.pid

-- name: advisory_elections
-- Elections in advisory mode.
SELECT e.name FROM {schema}.election e WHERE e.mode = 'advisory'

-- name: other_schemas
-- Other schemas of this database that hold tables of tenure.
SELECT n.nspname AS name
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE p.proname = 'session_key' AND oidvectortypes(p.proargtypes) = 'uuid, bigint' AND n.nspname <> %(schema)s

-- name: zone_rules
-- Active jobs planned with an older release of the zone rules than they were written with.
SELECT j.name, j.tzdata AS written, split_part(j.next_reading, '@', 1) AS planned
  FROM {schema}.job j WHERE j.state = 'active' AND j.next_reading < j.tzdata ORDER BY j.name LIMIT 6

-- name: nodes
-- Live nodes, and the sessions that hold their locks.
SELECT n.id::text AS id, n.label, n.ttl, n.host ->> 'pid' AS process,
       extract(epoch FROM clock_timestamp() - n.renewed_at)::float8 AS silent,
       ARRAY(SELECT e.name FROM {schema}.election e WHERE e.holder = n.id AND e.state = 'held'
              ORDER BY e.name) AS leads,
       l.pid AS session, host(a.client_addr) AS client
  FROM {schema}.node n
  LEFT JOIN pg_locks l ON l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.mode = 'ExclusiveLock'
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND (l.classid::bigint << 32) | l.objid::bigint = {schema}.session_key(n.id, n.session_nonce)
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE n.state = 'alive'
 ORDER BY n.label

-- name: held
-- Elections and their holders.
SELECT e.name, e.term, e.mode, e.holder::text AS node, coalesce(n.label, '') AS label, e.granted_at AS since,
       coalesce(n.state, 'gone') AS state
  FROM {schema}.election e LEFT JOIN {schema}.node n ON n.id = e.holder
 WHERE e.state = 'held'
 ORDER BY e.name
