-- The version of the schema, nodes, elections and terms. {schema} is the schema that the application chose.
-- No table is UNLOGGED: a lease that a crash can erase proves nothing.

CREATE TABLE {schema}.schema_version (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version int NOT NULL,   -- the newest migration that was applied
    oldest  int NOT NULL    -- the least version that a library must know to use the schema
);

INSERT INTO {schema}.schema_version (version, oldest) VALUES (0, 0);

CREATE TABLE {schema}.epoch (
    one               boolean PRIMARY KEY DEFAULT true CHECK (one),
    number            bigint NOT NULL DEFAULT 0,
    max_ttl           double precision NOT NULL DEFAULT 60,
    -- The server that the epoch was written for. Statements that grant or declare compare it with the server they run
    -- on.
    system_identifier text NOT NULL,
    timeline          bigint NOT NULL,
    database          text NOT NULL,
    relation          text NOT NULL,
    CONSTRAINT epoch_within_limits CHECK (number BETWEEN 0 AND 1::bigint << 42 AND max_ttl BETWEEN 0 AND 1e10)
);

CREATE TABLE {schema}.node (
    id            uuid PRIMARY KEY,
    state         text NOT NULL DEFAULT 'alive' CHECK (state IN ('alive', 'left', 'dead')),
    seq           bigint NOT NULL DEFAULT 0,
    ttl           double precision NOT NULL,
    label         text NOT NULL,
    joined_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    renewed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),   -- to read; no decision rests on a stored time
    ended_at      timestamptz,
    ended_by      text,
    host          jsonb,
    session_nonce bigint,
    session_grace double precision,
    CONSTRAINT node_within_limits CHECK (ttl > 0 AND ttl <= 1e10)
) WITH (fillfactor = 50);   -- a beat changes no indexed column and stays on its page

CREATE INDEX node_alive ON {schema}.node (id) WHERE state = 'alive';
CREATE INDEX node_ended ON {schema}.node (ended_at DESC NULLS LAST, id) WHERE state <> 'alive';

CREATE TABLE {schema}.election (
    name       text PRIMARY KEY,
    term       bigint NOT NULL DEFAULT 0,
    holder     uuid,
    state      text NOT NULL DEFAULT 'released' CHECK (state IN ('held', 'released')),
    mode       text NOT NULL DEFAULT 'lease' CHECK (mode IN ('lease', 'advisory')),
    fenced     boolean NOT NULL DEFAULT false,   -- the holder fences all its effects: it gave up promise G2 for speed
    granted_at timestamptz,
    reason     text,
    asked_term bigint,   -- the term whose holder is requested to resign
    UNIQUE (name, term), -- makes the term a key column: a fence (KEY SHARE) delays a new term and nothing else
    CONSTRAINT election_within_limits CHECK (term BETWEEN 0 AND 1::bigint << 62)
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
