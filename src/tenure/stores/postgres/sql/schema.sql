-- Statements of the migration driver.

-- name: schema_version
-- What the schema is, and the least that a library must know to use it.
SELECT version, oldest FROM {schema}.schema_version

-- name: migrators
-- Sessions that hold the lock of migrations.
SELECT l.pid, coalesce(a.usename::text, '?')
  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended('tenure migrate {schema}', 0)

-- name: users_of_tables
-- Sessions whose transactions have been using tables of the schema for almost as long as a migration waits.
SELECT DISTINCT l.pid, coalesce(a.usename::text, '?')
  FROM pg_locks l
  JOIN pg_class c ON c.oid = l.relation AND c.relkind = 'r'
  JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = '{schema}'
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid()
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND clock_timestamp() - coalesce(a.xact_start, '-infinity') > interval '400 ms'
 ORDER BY 1

-- name: strange_owners
-- A role that owns the schema or a function in it, and that the role which migrates cannot trust. It trusts itself,
-- superusers, the owner of the database, roles that it is a member of (a superuser is a member of every role, which
-- says nothing), and once there are tables, their owner.
SELECT o.rolname::text, x.kind, x.name
  FROM (SELECT n.nspowner AS owner, 'SCHEMA' AS kind, n.nspname::text AS name
          FROM pg_namespace n
         WHERE n.nspname = '{schema}'
           AND NOT EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'schema_version')
         UNION ALL
        SELECT p.proowner, 'FUNCTION', p.oid::regprocedure::text
          FROM pg_namespace n JOIN pg_proc p ON p.pronamespace = n.oid
         WHERE n.nspname = '{schema}'
           AND NOT EXISTS (SELECT FROM pg_class c
                            WHERE c.relnamespace = n.oid AND c.relname = 'schema_version'
                              AND c.relowner = p.proowner)) x
  JOIN pg_roles o ON o.oid = x.owner
  JOIN pg_roles me ON me.rolname = current_user
  JOIN pg_database d ON d.datname = current_database()
 WHERE NOT (o.oid = me.oid OR o.rolsuper OR o.oid = d.datdba OR o.rolname = 'pg_database_owner'
            OR (NOT me.rolsuper AND pg_has_role(o.oid, 'USAGE')))
 ORDER BY x.kind DESC, x.name LIMIT 1
