-- The log of actions: what people did.

-- name: actions
-- The newest actions in an application, and on elections that belong to none.
SELECT a.id, date_part('epoch', a.at), a.application, a.by, a.what, a.target, a.run, a.why, a.origin, a.detail
  FROM unnest(ARRAY[%(application)s, '']) AS w (application)
 CROSS JOIN LATERAL (SELECT x.* FROM {schema}.action x
                      WHERE x.application = w.application
                        AND (%(target)s::text IS NULL OR x.target = %(target)s::text)
                        AND (%(by)s::text IS NULL OR x.by = %(by)s::text)
                        AND x.at >= coalesce(to_timestamp(%(since)s::float8), '-infinity')
                        AND x.at < coalesce(to_timestamp(%(before)s::float8), 'infinity')
                      ORDER BY x.id DESC LIMIT %(limit)s) a
 ORDER BY a.id DESC LIMIT %(limit)s

-- name: forget_actions
-- Delete the oldest actions of an application, and on elections that belong to none, that need not be kept.
DELETE FROM {schema}.action a
 USING unnest(ARRAY[%(application)s, '']) AS w (application)
 CROSS JOIN LATERAL (SELECT x.id, x.at FROM {schema}.action x
                      WHERE x.application = w.application ORDER BY x.id LIMIT %(limit)s) o
 WHERE a.id = o.id
   AND (o.at < to_timestamp(%(before)s::float8)
        OR o.id <= (SELECT max(m.id) FROM {schema}.action m) - %(keep)s::bigint)
RETURNING a.id
