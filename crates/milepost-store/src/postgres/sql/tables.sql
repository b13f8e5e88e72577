-- The tables. `@.` is the schema that the store lives in: every name is written out in full, because a connection that
-- comes from a pooler has no search path of ours.

-- One row. Whoever writes holds it from the first statement to the commit, so that positions are in commit order.
CREATE TABLE @.counters (
    position    bigint NOT NULL,            -- the last one given
    plan        bigint NOT NULL,
    task        bigint NOT NULL,
    session     bigint NOT NULL,
    calls       bigint NOT NULL,            -- grows whenever other nodes are called, for those who cannot listen
    heard_at    bigint NOT NULL             -- when any node was last heard of
) WITH (fillfactor = 10);
INSERT INTO @.counters VALUES (0, 0, 0, 0, 0, floor(extract(epoch FROM clock_timestamp()) * 1000));

CREATE TABLE @.plans (
    no              bigint PRIMARY KEY,
    id              text COLLATE "C" NOT NULL UNIQUE,
    status          smallint NOT NULL,
    version         bigint NOT NULL,
    revision        integer NOT NULL,       -- of the definition
    max_concurrency integer NOT NULL,
    automatic       boolean,                -- recovery: auto; null when the plan does not say
    workflow        text COLLATE "C",       -- name@version; null for a plan of stages
    counts          integer[] NOT NULL,     -- of its tasks, by status
    slots           integer NOT NULL,       -- how many of its tasks have a slot
    first_task      bigint NOT NULL,        -- its tasks lie between these two numbers
    last_task       bigint NOT NULL,
    created_at      bigint NOT NULL,
    started_at      bigint,
    ended_at        bigint,
    changed_by      text,
    go              smallint NOT NULL DEFAULT 0 -- which eras it is set going for: 0 none, 1 this one, 2 also the next
) WITH (fillfactor = 70);
CREATE INDEX plans_open ON @.plans (no) WHERE ended_at IS NULL;
CREATE INDEX plans_said ON @.plans (no) WHERE go > 1;

CREATE TABLE @.plan_definitions (
    no          bigint PRIMARY KEY,
    definition  text NOT NULL,
    digest      bytea NOT NULL              -- of the definition and all tasks, to tell the same plan from another
);

-- What was asked for; never changes but by an update of its plan.
CREATE TABLE @.task_configs (
    no          bigint PRIMARY KEY,
    id          text COLLATE "C" NOT NULL UNIQUE,
    plan        bigint NOT NULL,
    tenant      text COLLATE "C",
    created_at  bigint NOT NULL,
    body        text,                       -- input, matrix and own stages; null when there is none of them
    crc         bigint NOT NULL
);
CREATE INDEX task_configs_tenant ON @.task_configs (tenant, no) WHERE tenant IS NOT NULL;

-- Where each task is: small, and written with every stage. Nothing that an index looks at changes from stage to stage.
CREATE TABLE @.task_runtimes (
    no          bigint PRIMARY KEY,
    plan        bigint NOT NULL,
    queue       smallint,                   -- 0 ready, 1 waits for its tenant, 2 held, 3 paused, 4 damaged, 5 to be undone,
                                            -- 6 sleeps until wake_at, 7 nobody has it: recovery; null when ended, or when it
                                            -- awaits a message
    rank        bigint NOT NULL,            -- smaller first: the priority, negated
    tenant      text COLLATE "C",
    status      smallint NOT NULL,
    slot        boolean NOT NULL,           -- it has one of its plan
    version     bigint NOT NULL,            -- the number of its events
    lease       bigint NOT NULL,            -- session << 40 | number; 0 when nobody has it
    wake_at     bigint,
    last_event  bigint NOT NULL,            -- the newest row of its log
    done        integer NOT NULL,
    total       integer NOT NULL,
    stage       text,
    attempt     integer NOT NULL,
    due_at      bigint,
    flags       smallint NOT NULL,          -- 1 interrupted, 2 pause requested, 4 awaits a message
    reason      text,
    progress    bigint,
    progress_of bigint,
    started_at  bigint,
    updated_at  bigint NOT NULL,
    ended_at    bigint,
    go          smallint NOT NULL DEFAULT 0 -- likewise, for the task by itself
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX task_runtimes_ready ON @.task_runtimes (plan, rank, no) WHERE queue = 0;
CREATE INDEX task_runtimes_waiting ON @.task_runtimes (tenant, plan, rank, no) WHERE queue = 1;
CREATE INDEX task_runtimes_go ON @.task_runtimes (plan, rank, no) WHERE go > 0;
CREATE INDEX task_runtimes_open ON @.task_runtimes (queue, wake_at, no) WHERE queue IN (2, 5, 6, 7);

-- The log, in commit order; a row holds the events of one commit. A row with a plan's number, negated, for its task says
-- what became of that plan: `seq` is the plan's version, and the body {is: status, at: milliseconds, by: who asked}.
CREATE TABLE @.events (
    pos              bigint PRIMARY KEY,
    task             bigint NOT NULL,
    seq              bigint NOT NULL,       -- of the first event in it
    crc              bigint NOT NULL,
    attempt_number   integer NOT NULL DEFAULT 1,
    backoff_delay_ms bigint,
    failure_reason   text,
    body             text NOT NULL          -- [[milliseconds, event], ...]
);
CREATE INDEX idx_events_attempt ON @.events (task, attempt_number, pos);

CREATE TABLE @.locks (
    tenant      text COLLATE "C" PRIMARY KEY,
    task        bigint NOT NULL,
    since       bigint NOT NULL,
    fence       bigint NOT NULL,
    expires_at  bigint NOT NULL             -- by the clock of this server
);

-- Who is there. A session that has ended can write nothing any more.
CREATE TABLE @.nodes (
    name        text COLLATE "C" PRIMARY KEY,
    session     bigint NOT NULL,
    boot_id     text NOT NULL,
    ended       boolean NOT NULL,
    started_at  bigint NOT NULL,
    seen_at     bigint NOT NULL,
    expires_at  bigint NOT NULL,
    in_hand     bigint NOT NULL,
    capacity    bigint NOT NULL,
    first_lease bigint NOT NULL DEFAULT 0,  -- a claim that would give out an earlier one comes too late
    lease_ms    bigint NOT NULL,
    patience_ms bigint NOT NULL             -- how long nobody may be heard of before somebody has to wonder
) WITH (fillfactor = 50);

-- The sessions that know which era they are in.
CREATE TABLE @.settled (
    session     bigint PRIMARY KEY
);

-- Those that want to know and could not be told yet.
CREATE TABLE @.asking (
    session     bigint PRIMARY KEY
);

CREATE TABLE @.letters (
    no          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id          text COLLATE "C" NOT NULL UNIQUE,
    session     bigint NOT NULL,
    task        text NOT NULL,
    body        text NOT NULL,
    posted_at   bigint NOT NULL,
    answer      text
);
CREATE INDEX letters_open ON @.letters (session, no) WHERE answer IS NULL;

CREATE TABLE @.tokens (
    id          text COLLATE "C" PRIMARY KEY,
    name        text NOT NULL,
    hash        bytea NOT NULL,
    scope       text NOT NULL,
    tenants     text NOT NULL,              -- [tenant, ...]; none: not bound to any
    created_at  bigint NOT NULL,
    expires_at  bigint,
    revoked_at  bigint
);

-- What clients call their submissions, and what they were answered.
CREATE TABLE @.requests (
    key         text COLLATE "C" PRIMARY KEY,
    digest      bytea NOT NULL,
    at          bigint NOT NULL,
    answer      text NOT NULL
);
CREATE INDEX requests_at ON @.requests (at);

-- What a task with a long log is after one of its rows. At most one a task.
CREATE TABLE @.snapshots (
    task        bigint PRIMARY KEY,
    seq         bigint NOT NULL,
    pos         bigint NOT NULL,
    crc         bigint NOT NULL,
    body        text NOT NULL
);

CREATE TABLE @.logs (
    no          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task        bigint NOT NULL,
    stage       text NOT NULL,
    attempt     integer NOT NULL,
    at          bigint NOT NULL,
    bytes       bytea NOT NULL
);
CREATE INDEX logs_task ON @.logs (task, no);
