-- What nodes do with elections.

-- The identity of the server that this statement runs on. The timeline is the one being written, because the control
-- file shows the old one for minutes after a promotion. A server that does not tell has timeline 0 (Amazon Aurora:
-- its nodes share one volume, so a failover loses no commit). A server in recovery raises: it writes no timeline.
-- SECURITY DEFINER, so that every role gets the same answer.
CREATE OR REPLACE FUNCTION {schema}.server_identity(
    OUT system_identifier text, OUT timeline bigint, OUT database text, OUT relation text
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    BEGIN
        SELECT c.system_identifier::text INTO system_identifier FROM pg_catalog.pg_control_system() c;
    EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
        system_identifier := '';
    END;
    BEGIN
        timeline := ('x' || lpad(substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8), 16, '0'))
                    ::bit(64)::bigint;
    EXCEPTION WHEN object_not_in_prerequisite_state OR feature_not_supported OR undefined_function
                   OR insufficient_privilege THEN
        IF pg_catalog.pg_is_in_recovery() THEN RAISE; END IF;
        timeline := 0;
    END;
    SELECT d.oid::text INTO database FROM pg_catalog.pg_database d WHERE d.datname = current_database();
    relation := '{schema}.election'::regclass::oid::text;
END $$;

-- True if the epoch was written for this server. If not, no term is granted and no node is declared dead.
CREATE OR REPLACE FUNCTION {schema}.epoch_is_current() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (e.system_identifier, e.timeline, e.database, e.relation)
         = (h.system_identifier, h.timeline, h.database, h.relation)
      FROM {schema}.epoch e, {schema}.server_identity() h
$$;

-- The first epoch belongs to the server on which the tables were created.
INSERT INTO {schema}.epoch (system_identifier, timeline, database, relation)
SELECT h.system_identifier, h.timeline, h.database, h.relation FROM {schema}.server_identity() h
ON CONFLICT DO NOTHING;

-- The key of the advisory lock that a node's session holds.
CREATE OR REPLACE FUNCTION {schema}.session_key(node uuid, nonce bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_catalog.hashtextextended('tenure ' || node::text, nonce)
$$;

-- Grants a term by compare-and-swap on (term, holder). There are four ways to get one:
--   the holder released the election, or there was none;
--   the holder is no longer alive;
--   the holder's session has vanished: the `seen_…` arguments say what was observed, and are compared again here;
--   the holder's advisory lock is free in this statement, if both sides declared the election fenced.
CREATE OR REPLACE FUNCTION {schema}.acquire(
    candidate uuid, election_name text, wanted_mode text, is_fenced boolean,
    seen_term bigint, seen_holder uuid, seen_seq bigint, seen_nonce bigint,
    OUT outcome text, OUT granted bigint, OUT current_holder uuid, OUT detail text
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    e       {schema}.election%ROWTYPE;
    h       {schema}.node%ROWTYPE;
    since   timestamptz;
    why     text;
    epoch   bigint;
    now_    timestamptz;
BEGIN
    -- This lock does not delay beats. It excludes a declaration that the candidate is dead.
    PERFORM 1 FROM {schema}.node n WHERE n.id = candidate AND n.state = 'alive' FOR KEY SHARE;
    IF NOT FOUND THEN outcome := 'gone'; RETURN; END IF;
    IF NOT {schema}.epoch_is_current() THEN outcome := 'moved'; RETURN; END IF;

    SELECT * INTO e FROM {schema}.election x WHERE x.name = election_name;
    IF NOT FOUND THEN
        INSERT INTO {schema}.election (name, mode) VALUES (election_name, wanted_mode) ON CONFLICT DO NOTHING;
        SELECT * INTO e FROM {schema}.election x WHERE x.name = election_name;
    END IF;
    IF e.mode <> wanted_mode THEN outcome := 'mismatch'; detail := e.mode; RETURN; END IF;
    IF e.term >= 1::bigint << 62 THEN   -- not reached by counting: the row was tampered with
        outcome := 'held'; detail := 'no higher term'; RETURN;
    END IF;

    SELECT * INTO h FROM {schema}.node n WHERE n.id = e.holder;
    since := h.renewed_at;
    IF e.holder IS NULL THEN
        why := 'first';
    ELSIF e.state = 'released' THEN
        why := 'released';
        SELECT t.ended_at INTO since FROM {schema}.term t WHERE t.election = e.name AND t.number = e.term;
    ELSIF h.id IS NULL OR h.state <> 'alive' THEN
        why := coalesce(h.state || ': ' || h.ended_by, 'dead: its row is gone');
    ELSIF e.holder = seen_holder AND e.term = seen_term AND h.seq = seen_seq AND h.session_nonce = seen_nonce THEN
        why := 'session ended';
    ELSIF is_fenced AND e.fenced AND h.session_nonce IS NOT NULL
          AND pg_try_advisory_xact_lock_shared({schema}.session_key(h.id, h.session_nonce)) THEN
        why := 'session lock free (fenced election)';
    ELSE
        outcome := 'held'; current_holder := e.holder; RETURN;
    END IF;

    -- If an open fence or another candidate has locked the row, losing this round is better than waiting.
    PERFORM 1 FROM {schema}.election x
      WHERE x.name = e.name AND x.term = e.term AND x.holder IS NOT DISTINCT FROM e.holder AND x.state = e.state
        FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN outcome := 'busy'; current_holder := e.holder; RETURN; END IF;

    SELECT x.number INTO epoch FROM {schema}.epoch x;
    now_ := clock_timestamp();
    granted := greatest(e.term + 1, epoch << 20);
    UPDATE {schema}.election
       SET term = granted, holder = candidate, state = 'held', fenced = is_fenced, granted_at = now_, reason = why,
           asked_term = NULL
     WHERE name = e.name;
    UPDATE {schema}.term t SET ended_at = now_, ended_by = why
     WHERE t.election = e.name AND t.number = e.term AND t.ended_at IS NULL;
    INSERT INTO {schema}.term (election, number, node, label, began_at, began_by, gap)
    SELECT e.name, granted, candidate, n.label, now_, why, extract(epoch FROM now_ - since)
      FROM {schema}.node n WHERE n.id = candidate;
    DELETE FROM {schema}.term t   -- the history is bounded; the election's row, which has the number, is never deleted
     WHERE t.election = e.name
       AND t.number < (SELECT o.number FROM {schema}.term o WHERE o.election = e.name
                        ORDER BY o.number DESC OFFSET 1000 LIMIT 1);
    outcome := 'granted'; current_holder := candidate; detail := why;
END $$;

-- Ends a term on its holder's request. False if the caller does not hold it.
CREATE OR REPLACE FUNCTION {schema}.release(releaser uuid, election_name text, of_term bigint, why text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE {schema}.election x SET state = 'released', asked_term = NULL
     WHERE x.name = election_name AND x.term = of_term AND x.holder = releaser AND x.state = 'held';
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE {schema}.term t SET ended_at = clock_timestamp(), ended_by = why
     WHERE t.election = election_name AND t.number = of_term;
    PERFORM pg_notify('{channel}', election_name);   -- delivered at commit: nodes that wake see the freed row
    RETURN true;
END $$;

-- Declares a node dead, which is final. Host evidence passes no `seen_seq`: the process is gone, so its last beat,
-- even one that arrives late, changes nothing.
CREATE OR REPLACE FUNCTION {schema}.declare_dead(dead uuid, seen_seq bigint, why text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT {schema}.epoch_is_current() THEN RETURN false; END IF;
    PERFORM 1 FROM {schema}.node n
      WHERE n.id = dead AND n.state = 'alive' AND n.seq = coalesce(seen_seq, n.seq)
        FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE {schema}.node n SET state = 'dead', ended_at = clock_timestamp(), ended_by = why WHERE n.id = dead;
    PERFORM pg_notify('{channel}', '');
    RETURN true;
END $$;

-- A node stops in good order: it leaves, and releases what it holds.
CREATE OR REPLACE FUNCTION {schema}.leave(leaver uuid, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE {schema}.node n SET state = 'left', ended_at = clock_timestamp(), ended_by = why
     WHERE n.id = leaver AND n.state = 'alive';
    PERFORM {schema}.release(leaver, held.name, held.term, why)
       FROM (SELECT x.name, x.term FROM {schema}.election x
              WHERE x.holder = leaver AND x.state = 'held' ORDER BY x.name) held;
END $$;
