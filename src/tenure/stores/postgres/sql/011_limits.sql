-- What no row may say, where that is cheap to ask: of jobs, nodes and elections, not of runs, which are written three times each.
--
-- Whoever may write these tables may do harm; these limits keep a mistake of theirs from stopping what others do.

ALTER TABLE {schema}.job ADD CONSTRAINT job_within_limits CHECK (
    generation BETWEEN 0 AND 2147483647
    AND json_typeof(rules) = 'object'
    AND on_time BETWEEN 0 AND 1e10   -- NaN is more than that
    AND max_lost >= 0
    -- As far as a calendar reaches: no infinity.
    AND next_due BETWEEN '1900-01-01 00:00Z' AND '9999-01-01 00:00Z'
    AND paused_until BETWEEN '1900-01-01 00:00Z' AND '9999-01-01 00:00Z'
    AND since BETWEEN '1900-01-01 00:00Z' AND '9999-01-01 00:00Z'
);

ALTER TABLE {schema}.node ADD CONSTRAINT node_within_limits CHECK (ttl > 0 AND ttl <= 1e10);

ALTER TABLE {schema}.election ADD CONSTRAINT election_within_limits CHECK (term BETWEEN 0 AND 1::bigint << 62);

ALTER TABLE {schema}.epoch ADD CONSTRAINT epoch_within_limits CHECK (number BETWEEN 0 AND 1::bigint << 42 AND max_ttl BETWEEN 0 AND 1e10);
