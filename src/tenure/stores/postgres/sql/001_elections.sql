-- Nodes, elections, terms and the fence. {schema} is the schema that the application chose.
-- Nothing here is UNLOGGED: a lease that a crash can forget is none.

CREATE TABLE {schema}.epoch (
    one               boolean PRIMARY KEY DEFAULT true CHECK (one),
    number            bigint NOT NULL DEFAULT 0,
    max_ttl           double precision NOT NULL DEFAULT 60,
    -- The server that the epoch was written for. Granting and declaring statements compare it with the one they run on.
    system_identifier text NOT NULL,
    timeline          bigint NOT NULL,
    database          text NOT NULL,
    relation          text NOT NULL
);

CREATE TABLE {schema}.node (
    id            uuid PRIMARY KEY,
    state         text NOT NULL DEFAULT 'alive' CHECK (state IN ('alive', 'left', 'dead')),
    seq           bigint NOT NULL DEFAULT 0,
    ttl           double precision NOT NULL,
    label         text NOT NULL,
    joined_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    renewed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),   -- for people; nothing is ever decided from a stored time
    ended_at      timestamptz,
    ended_by      text,
    host          jsonb,
    session_nonce bigint,
    session_grace double precision
) WITH (fillfactor = 50);   -- a beat changes no indexed column and stays on its page

CREATE INDEX node_alive ON {schema}.node (id) WHERE state = 'alive';

CREATE TABLE {schema}.election (
    name       text PRIMARY KEY,
    term       bigint NOT NULL DEFAULT 0,
    holder     uuid,
    state      text NOT NULL DEFAULT 'released' CHECK (state IN ('held', 'released')),
    mode       text NOT NULL DEFAULT 'lease' CHECK (mode IN ('lease', 'advisory')),
    fenced     boolean NOT NULL DEFAULT false,   -- the holder of this term has all its effects fenced: it gave up G2 for speed
    granted_at timestamptz,
    reason     text,
    asked_term bigint,   -- somebody wants the holder of this term to resign
    UNIQUE (name, term)  -- makes the term a key column: a fence (KEY SHARE) holds up a new term and nothing else
) WITH (fillfactor = 50);

CREATE INDEX election_held ON {schema}.election (holder) WHERE state = 'held';

CREATE TABLE {schema}.term (
    election text NOT NULL,
    number   bigint NOT NULL,
    node     uuid NOT NULL,
    label    text NOT NULL,
    began_at timestamptz NOT NULL,
    began_by text NOT NULL,
    ended_at timestamptz,
    ended_by text,
    gap      double precision,
    PRIMARY KEY (election, number)
);

-- The timeline being *written*: the control file still shows the old one for minutes after a promotion. A server that does not say (Amazon
-- Aurora: its nodes share one volume, so that a failover forgets no commit) has timeline 0. One in recovery raises: it writes none.
CREATE FUNCTION {schema}.here(OUT system_identifier text, OUT timeline bigint, OUT database text, OUT relation text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$   -- the same answer for every role
BEGIN
    BEGIN
        SELECT c.system_identifier::text INTO system_identifier FROM pg_catalog.pg_control_system() c;
    EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
        system_identifier := '';
    END;
    BEGIN
        timeline := ('x' || lpad(substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8), 16, '0'))::bit(64)::bigint;
    EXCEPTION WHEN object_not_in_prerequisite_state OR feature_not_supported OR undefined_function OR insufficient_privilege THEN
        IF pg_catalog.pg_is_in_recovery() THEN RAISE; END IF;
        timeline := 0;
    END;
    SELECT d.oid::text INTO database FROM pg_catalog.pg_database d WHERE d.datname = current_database();
    relation := '{schema}.election'::regclass::oid::text;
END $$;

CREATE FUNCTION {schema}.settled() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (e.system_identifier, e.timeline, e.database, e.relation) = (h.system_identifier, h.timeline, h.database, h.relation)
      FROM {schema}.epoch e, {schema}.here() h
$$;

INSERT INTO {schema}.epoch (system_identifier, timeline, database, relation)
SELECT h.system_identifier, h.timeline, h.database, h.relation FROM {schema}.here() h;

-- The key of the advisory lock that a node's session holds.
CREATE FUNCTION {schema}.session_key(node uuid, nonce bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$ SELECT pg_catalog.hashtextextended('tenure ' || node::text, nonce) $$;

-- Grant a term, by compare-and-swap on (term, holder), where the holder released, is not alive, has vanished by session evidence
-- (the last four arguments, compared again here), or, where both sides declared the election fenced, its advertised lock is free in
-- this very statement.
CREATE FUNCTION {schema}.acquire(
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
    -- Beats pass beside this lock; a declaration of our own death does not.
    PERFORM 1 FROM {schema}.node n WHERE n.id = candidate AND n.state = 'alive' FOR KEY SHARE;
    IF NOT FOUND THEN outcome := 'gone'; RETURN; END IF;
    IF NOT {schema}.settled() THEN outcome := 'moved'; RETURN; END IF;

    SELECT * INTO e FROM {schema}.election x WHERE x.name = election_name;
    IF NOT FOUND THEN
        INSERT INTO {schema}.election (name, mode) VALUES (election_name, wanted_mode) ON CONFLICT DO NOTHING;
        SELECT * INTO e FROM {schema}.election x WHERE x.name = election_name;
    END IF;
    IF e.mode <> wanted_mode THEN outcome := 'mismatch'; detail := e.mode; RETURN; END IF;
    IF e.term >= 1::bigint << 62 THEN outcome := 'held'; detail := 'no higher term'; RETURN; END IF;   -- nobody came there by counting

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

    -- Losing a round beats queueing: an open fence, or another candidate, has the row.
    PERFORM 1 FROM {schema}.election x
      WHERE x.name = e.name AND x.term = e.term AND x.holder IS NOT DISTINCT FROM e.holder AND x.state = e.state
        FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN outcome := 'busy'; current_holder := e.holder; RETURN; END IF;

    SELECT x.number INTO epoch FROM {schema}.epoch x;
    now_ := clock_timestamp();
    granted := greatest(e.term + 1, epoch << 20);
    UPDATE {schema}.election
       SET term = granted, holder = candidate, state = 'held', fenced = is_fenced, granted_at = now_, reason = why, asked_term = NULL
     WHERE name = e.name;
    UPDATE {schema}.term t SET ended_at = now_, ended_by = why
     WHERE t.election = e.name AND t.number = e.term AND t.ended_at IS NULL;
    INSERT INTO {schema}.term (election, number, node, label, began_at, began_by, gap)
    SELECT e.name, granted, candidate, n.label, now_, why, extract(epoch FROM now_ - since)
      FROM {schema}.node n WHERE n.id = candidate;
    DELETE FROM {schema}.term t   -- the history is bounded; the election's row, which carries the number, is never deleted
     WHERE t.election = e.name
       AND t.number < (SELECT o.number FROM {schema}.term o WHERE o.election = e.name ORDER BY o.number DESC OFFSET 1000 LIMIT 1);
    outcome := 'granted'; current_holder := candidate; detail := why;
END $$;

CREATE FUNCTION {schema}.release(releaser uuid, election_name text, of_term bigint, why text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE {schema}.election x SET state = 'released', asked_term = NULL
     WHERE x.name = election_name AND x.term = of_term AND x.holder = releaser AND x.state = 'held';
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE {schema}.term t SET ended_at = clock_timestamp(), ended_by = why WHERE t.election = election_name AND t.number = of_term;
    PERFORM pg_notify('{channel}', election_name);   -- delivered at commit: whoever wakes sees the freed row
    RETURN true;
END $$;

-- `dead` is final. Host evidence passes no count: the process is gone, and whatever it sent last changes nothing.
CREATE FUNCTION {schema}.declare_dead(dead uuid, seen_seq bigint, why text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT {schema}.settled() THEN RETURN false; END IF;
    PERFORM 1 FROM {schema}.node n WHERE n.id = dead AND n.state = 'alive' AND n.seq = coalesce(seen_seq, n.seq) FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE {schema}.node n SET state = 'dead', ended_at = clock_timestamp(), ended_by = why WHERE n.id = dead;
    PERFORM pg_notify('{channel}', '');
    RETURN true;
END $$;

CREATE FUNCTION {schema}.leave(leaver uuid, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE {schema}.node n SET state = 'left', ended_at = clock_timestamp(), ended_by = why WHERE n.id = leaver AND n.state = 'alive';
    PERFORM {schema}.release(leaver, held.name, held.term, why)
       FROM (SELECT x.name, x.term FROM {schema}.election x WHERE x.holder = leaver AND x.state = 'held' ORDER BY x.name) held;
END $$;

-- The fence: the last statement of the caller's transaction. It raises inside the server, so that whoever swallows the error cannot
-- commit what came before. KEY SHARE lets beats and releases pass and holds up a new term until the caller has committed;
-- a caller that freezes is ended after the ttl. The caller's role needs EXECUTE and nothing else.
CREATE FUNCTION {schema}.fence(election_name text, of_term bigint, of_holder uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_term bigint;
    patience   double precision;
BEGIN
    PERFORM 1 FROM {schema}.election x
      WHERE x.name = election_name AND x.term = of_term AND x.holder = of_holder AND x.state = 'held'
        FOR KEY SHARE;
    IF NOT FOUND THEN
        SELECT x.term INTO found_term FROM {schema}.election x WHERE x.name = election_name;
        RAISE EXCEPTION 'tenure: term % of election "%" is over, the current one is %', of_term, election_name, coalesce(found_term, 0)
            USING ERRCODE = 'TN001', HINT = 'Another node may lead. Nothing of this transaction was committed.';
    END IF;
    SELECT least(n.ttl, nullif(extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval), 0)) INTO patience
      FROM {schema}.node n WHERE n.id = of_holder;   -- a shorter limit of the caller's own stays
    PERFORM set_config('idle_in_transaction_session_timeout', ceil(coalesce(patience, 10) * 1000)::bigint::text, true);
END $$;
