-- What happens to tasks and plans: many at once, each with a verdict of its own. Which status follows from which is not
-- known here: callers bring it as tables with an entry for each status of a plan, -1 where that refuses.

-- What follows when tasks went from one status to another: counts, slots, the ends of plans, tenants.
-- A plan's change has the position after that of the last task that made it.
CREATE FUNCTION @.settle(
    own bigint, base bigint, ords bigint[], nos bigint[], task_plans bigint[], froms smallint[], tos smallint[],
    slot_changes integer[], tenants text[], ats bigint[], asks boolean[],
    asked smallint[], all_completed smallint[], some_not smallint[]
) RETURNS TABLE (ord bigint, plan text, status smallint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE free text[]; more boolean := false;
BEGIN
    RETURN QUERY
    WITH moved AS (
        SELECT * FROM unnest(ords, task_plans, froms, tos, slot_changes, ats, asks) m (ord, plan, was, now, slot, at, asks)
    ), delta AS MATERIALIZED (
        SELECT m.plan, max(m.ord) AS ord, max(m.at) AS at, sum(m.slot)::integer AS slots,
            bool_or(m.now IN (3, 4, 5, 7, 8)) AS ended, bool_or(m.asks) AS asks,
            ARRAY[
                sum((m.now = 0)::integer - (m.was = 0)::integer), sum((m.now = 1)::integer - (m.was = 1)::integer),
                sum((m.now = 2)::integer - (m.was = 2)::integer), sum((m.now = 3)::integer - (m.was = 3)::integer),
                sum((m.now = 4)::integer - (m.was = 4)::integer), sum((m.now = 5)::integer - (m.was = 5)::integer),
                sum((m.now = 6)::integer - (m.was = 6)::integer), sum((m.now = 7)::integer - (m.was = 7)::integer),
                sum((m.now = 8)::integer - (m.was = 8)::integer)
            ] AS change
        FROM moved m GROUP BY m.plan
    ), counted AS MATERIALIZED (
        SELECT d.*, p.status AS was, p.ended_at,
            ARRAY[p.counts[1] + d.change[1], p.counts[2] + d.change[2], p.counts[3] + d.change[3], p.counts[4] + d.change[4],
                p.counts[5] + d.change[5], p.counts[6] + d.change[6], p.counts[7] + d.change[7], p.counts[8] + d.change[8],
                p.counts[9] + d.change[9]]::integer[] AS counts,
            CASE WHEN d.asks AND asked[p.status + 1] >= 0 THEN asked[p.status + 1] ELSE p.status END AS asked_status
        FROM delta d JOIN @.plans p ON p.no = d.plan
    ), opened AS MATERIALIZED (
        SELECT c.*, c.counts[1] + c.counts[2] + c.counts[3] + c.counts[7] = 0 AS over,
            c.counts[5] + c.counts[6] + c.counts[8] + c.counts[9] = 0 AS completed
        FROM counted c
    ), settled AS MATERIALIZED (
        SELECT o.*, CASE
            WHEN NOT (o.ended AND o.over) THEN o.asked_status
            WHEN o.completed THEN all_completed[o.asked_status + 1]
            ELSE some_not[o.asked_status + 1] END AS status
        FROM opened o
    ), changed AS MATERIALIZED (
        -- A plan is CANCELLED from the word on, and ends with its last task.
        SELECT s.*, s.status <> s.was OR (s.status >= 4 AND s.over AND s.ended_at IS NULL) AS changed FROM settled s
    ), updated AS (
        UPDATE @.plans p SET counts = c.counts, slots = p.slots + c.slots, status = c.status,
            version = p.version + c.changed::integer,
            started_at = CASE WHEN c.changed AND c.status = 2 THEN coalesce(p.started_at, c.at) ELSE p.started_at END,
            ended_at = CASE WHEN NOT c.changed THEN p.ended_at WHEN c.status >= 4 AND c.over THEN c.at END,
            changed_by = CASE WHEN c.status = p.status THEN p.changed_by END
        FROM changed c WHERE p.no = c.plan
        RETURNING p.no, p.id, p.version, c.ord, c.status, c.at, c.changed
    ), logged AS (
        INSERT INTO @.events (pos, task, seq, crc, body)
        SELECT base + 2 * u.ord, -u.no, u.version, 0, @.plan_body(u.status, u.at, NULL) FROM updated u WHERE u.changed
    )
    SELECT u.ord, u.id, u.status FROM updated u WHERE u.changed;

    -- Only its owner's end gives a lock back.
    DELETE FROM @.locks l USING unnest(nos, tos, tenants) m (no, now, tenant)
    WHERE m.now IN (3, 4, 5, 7, 8) AND l.tenant = m.tenant AND l.task = m.no;
    -- It may have been first in line for a tenant that nobody has, so the next have to be told.
    SELECT array_agg(m.tenant) INTO free FROM unnest(froms, tos, tenants) m (was, now, tenant)
    WHERE m.tenant IS NOT NULL AND (m.now IN (3, 4, 5, 7, 8) OR (m.was = 0 AND m.now = 2));
    IF free IS NOT NULL THEN
        more := @.wake_waiters(free);
    END IF;
    -- A slot or a tenant is free, or there is a new task to take: others may be waiting for that.
    IF more OR EXISTS (SELECT FROM unnest(tos) t (now) WHERE t.now = 0) OR EXISTS (
        SELECT FROM unnest(task_plans, slot_changes) m (plan, slot) JOIN @.plans p ON p.no = m.plan
        WHERE m.slot < 0 AND p.status = 2
            AND EXISTS (SELECT FROM @.task_runtimes r WHERE r.queue = 0 AND r.plan = m.plan)
    ) THEN
        PERFORM @.call_others(own);
    END IF;
END $$;

CREATE FUNCTION @.plan_body(status smallint, at bigint, by_whom text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT '{"is":"' || (ARRAY['CREATED', 'READY', 'RUNNING', 'PAUSED', 'COMPLETED', 'FAILED', 'CANCELLED'])[status + 1]
        || '","at":' || at || coalesce(',"by":' || by_whom, '') || '}'
$$;

-- Where a task waits that nobody works on. While it awaits a message it is nowhere, and nobody finds it.
CREATE FUNCTION @.idle_queue(status smallint, flags smallint) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE status WHEN 0 THEN CASE WHEN flags & 4 = 0 THEN 0 END WHEN 2 THEN 3 END::smallint
$$;

-- A person wants these tasks to run, and their plans with them where `asked` makes them RUNNING by the same word. What a
-- plan is set going for already need not be kept with its tasks.
CREATE FUNCTION @.let_go(own bigint, nos bigint[], asked smallint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @.plans p SET go = @.go_now(own, p.automatic)
    WHERE p.no IN (SELECT r.plan FROM @.task_runtimes r WHERE r.no = ANY (nos)) AND p.status <> 2 AND asked[p.status + 1] = 2;
    UPDATE @.task_runtimes r SET go = @.go_now(own, false) FROM @.plans p
    WHERE r.no = ANY (nos) AND p.no = r.plan AND p.automatic IS NOT TRUE AND @.go_now(own, false)
        > CASE WHEN p.ended_at IS NULL OR asked[p.status + 1] = 2 THEN p.go ELSE 0 END;
END $$;

-- Holders: a lease, -1 for an operator, or -2 for one who sets the task going. `after`: 0 as it was, 1 asleep until `wake`, 2 for recovery, 3 to be undone.
-- Verdicts: 0 taken, 1 unknown, 2 at another version, 3 another's, 4 refused by its plan, 5 what it
-- has for the books is there already: `there` says which of the entries.
CREATE FUNCTION @.commit_tasks(
    own bigint, nos bigint[], holders bigint[], expected bigint[], afters smallint[], wakes bigint[],
    statuses smallint[], versions bigint[], dones integer[], totals integer[], stages text[], attempts integer[],
    dues bigint[], flagses smallint[], reasons text[], starts bigint[], updates bigint[], ends bigint[], clears boolean[],
    bodies text[], crcs bigint[], event_attempts integer[], backoffs bigint[], failures text[],
    asked smallint[], all_completed smallint[], some_not smallint[],
    log_ords bigint[], log_stages text[], log_attempts integer[], log_ats bigint[], log_bytes bytea[],
    image_ords bigint[], image_crcs bigint[], image_bodies text[],
    entry_ords bigint[] DEFAULT NULL, entry_books smallint[] DEFAULT NULL, entry_keys text[] DEFAULT NULL,
    entry_ats bigint[] DEFAULT NULL, entry_untils bigint[] DEFAULT NULL, entry_bodies text[] DEFAULT NULL,
    entry_replaces boolean[] DEFAULT NULL,
    strike_ords bigint[] DEFAULT NULL, strike_books smallint[] DEFAULT NULL, strike_keys text[] DEFAULT NULL
) RETURNS TABLE (verdicts smallint[], found_versions bigint[], found_leases bigint[], positions bigint[], plan_statuses smallint[],
    change_ords bigint[], change_statuses smallint[], there bigint[]) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    base bigint := @.begin_write(own);
    m_ords bigint[]; m_nos bigint[]; m_plans bigint[]; m_froms smallint[]; m_tos smallint[]; m_slots integer[];
    m_tenants text[]; m_ats bigint[]; released boolean; refused_ords bigint[];
BEGIN
    IF 0 > ANY (holders) THEN
        PERFORM @.reap(own);
    END IF;
    IF entry_ords IS NOT NULL THEN
        there := @.entries_there(entry_books, entry_keys, entry_ats, entry_replaces);
        refused_ords := ARRAY(SELECT entry_ords[k.place] FROM unnest(there) k (place));
    END IF;
    WITH input AS MATERIALIZED (
        SELECT * FROM unnest(nos, holders, expected, afters, wakes, statuses, versions, dones, totals, stages, attempts, dues,
            flagses, reasons, starts, updates, ends, clears, bodies, crcs, event_attempts, backoffs, failures) WITH ORDINALITY
            i (no, holder, expected, after, wake, status, version, done, total, stage, attempt, due_at, flags, reason,
            started_at, updated_at, ended_at, clears, body, crc, event_attempt, backoff, failure, ord)
    ), judged AS MATERIALIZED (
        SELECT i.*, i.status IN (1, 6) AS active, r.plan, r.status AS was, r.version AS found_version, r.lease AS found_lease,
            r.queue AS was_queue, r.wake_at AS was_wake, r.slot, r.tenant, r.last_event, p.status AS plan_status,
            CASE
                WHEN r.no IS NULL THEN 1
                WHEN i.holder > 0 AND r.lease = i.holder AND i.holder >> 40 = own THEN
                    CASE WHEN r.version <> i.expected THEN 2 WHEN asked[p.status + 1] < 0 THEN 4
                        WHEN i.ord = ANY (refused_ords) THEN 5 ELSE 0 END
                -- A commit that gave its lease back and is sent again hears that the first one had arrived.
                WHEN i.holder >= 0 AND r.lease = 0 AND r.version <> i.expected THEN 2
                WHEN i.holder >= 0 OR r.queue = 2 THEN 3
                WHEN r.version <> i.expected THEN 2
                WHEN asked[p.status + 1] < 0 THEN 4
                WHEN i.ord = ANY (refused_ords) THEN 5
                ELSE 0
            END AS verdict
        FROM input i LEFT JOIN @.task_runtimes r ON r.no = i.no
        LEFT JOIN @.plans p ON asked IS NOT NULL AND p.no = r.plan
    ), updated AS (
        UPDATE @.task_runtimes r SET version = j.version, done = j.done, total = j.total, stage = j.stage, attempt = j.attempt,
            due_at = j.due_at, flags = j.flags, reason = j.reason, started_at = j.started_at, updated_at = j.updated_at,
            ended_at = j.ended_at, status = j.status, slot = r.slot AND j.active,
            progress = CASE WHEN NOT j.clears THEN r.progress END,
            last_event = CASE WHEN j.body IS NULL THEN r.last_event ELSE base + 2 * j.ord - 1 END,
            lease = CASE WHEN j.active AND j.after = 0 AND j.holder >= 0 THEN r.lease ELSE 0 END,
            wake_at = CASE WHEN NOT j.active THEN NULL WHEN j.after IN (1, 3) THEN j.wake
                WHEN j.after = 0 AND j.found_lease = 0 THEN r.wake_at END,
            queue = CASE
                WHEN NOT j.active THEN @.idle_queue(j.status, j.flags)
                WHEN j.after = 1 THEN 6 WHEN j.after = 2 THEN 7 WHEN j.after = 3 THEN 5
                WHEN j.holder < 0 AND j.found_lease <> 0 THEN 7
                ELSE r.queue END
        FROM judged j WHERE r.no = j.no AND j.verdict = 0
    ), logged AS (
        INSERT INTO @.events (pos, task, seq, crc, attempt_number, backoff_delay_ms, failure_reason, body)
        SELECT base + 2 * j.ord - 1, j.no, j.expected + 1, j.crc, j.event_attempt, j.backoff, j.failure, j.body
        FROM judged j WHERE j.verdict = 0 AND j.body IS NOT NULL
    )
    SELECT array_agg(j.verdict::smallint), array_agg(j.found_version),
        array_agg(j.found_lease),
        array_agg(CASE WHEN j.body IS NULL THEN j.last_event ELSE base + 2 * j.ord - 1 END),
        array_agg(j.plan_status),
        array_agg(j.ord) FILTER (WHERE j.moved), array_agg(j.no) FILTER (WHERE j.moved),
        array_agg(j.plan) FILTER (WHERE j.moved), array_agg(j.was) FILTER (WHERE j.moved),
        array_agg(j.status) FILTER (WHERE j.moved),
        array_agg(CASE WHEN j.slot AND NOT j.active THEN -1 ELSE 0 END) FILTER (WHERE j.moved),
        array_agg(j.tenant) FILTER (WHERE j.moved), array_agg(j.updated_at) FILTER (WHERE j.moved),
        -- Given back, or set going where it waits. Who has its message is not called for: see `idle_queue`; unless it was
        -- taken in by a visitor, who runs nothing.
        bool_or(j.verdict = 0 AND (j.active AND j.after <> 0 OR j.holder = -2 AND j.was = 0 AND j.was_queue IS NOT NULL
            OR own IS NULL AND j.status = 0 AND j.was_queue IS NULL AND @.idle_queue(j.status, j.flags) = 0))
    INTO verdicts, found_versions, found_leases, positions, plan_statuses,
        m_ords, m_nos, m_plans, m_froms, m_tos, m_slots, m_tenants, m_ats, released
    FROM (
        SELECT *, j.verdict = 0 AND (j.status <> j.was OR asked IS NOT NULL) AS moved FROM judged j ORDER BY j.ord
    ) j;

    IF -2 = ANY (holders) THEN
        PERFORM @.let_go(own, array_agg(i.no), asked)
        FROM unnest(nos, holders, verdicts) i (no, holder, verdict) WHERE i.holder = -2 AND i.verdict = 0;
    END IF;
    UPDATE @.counters SET position = base + 2 * cardinality(nos);
    IF m_ords IS NOT NULL THEN
        SELECT array_agg(s.ord), array_agg(s.status) INTO change_ords, change_statuses
        FROM @.settle(own, base, m_ords, m_nos, m_plans, m_froms, m_tos, m_slots, m_tenants, m_ats,
            array_fill(asked IS NOT NULL, ARRAY[cardinality(m_ords)]), asked, all_completed, some_not) s;
    END IF;
    IF released THEN
        PERFORM @.call_others(own);
    END IF;
    IF cardinality(log_ords) > 0 THEN
        INSERT INTO @.logs (task, stage, attempt, at, bytes)
        SELECT nos[l.ord], l.stage, l.attempt, l.at, l.bytes
        FROM unnest(log_ords, log_stages, log_attempts, log_ats, log_bytes) WITH ORDINALITY l (ord, stage, attempt, at, bytes, i)
        WHERE verdicts[l.ord] = 0 ORDER BY l.i;
    END IF;
    IF cardinality(image_ords) > 0 THEN
        INSERT INTO @.snapshots (task, seq, pos, crc, body)
        SELECT nos[s.ord], versions[s.ord], positions[s.ord], s.crc, s.body
        FROM unnest(image_ords, image_crcs, image_bodies) s (ord, crc, body) WHERE verdicts[s.ord] = 0
        ON CONFLICT (task) DO UPDATE SET seq = excluded.seq, pos = excluded.pos, crc = excluded.crc, body = excluded.body;
    END IF;
    IF entry_ords IS NOT NULL THEN
        PERFORM @.write_entries(ARRAY(SELECT v.verdict = 0 FROM unnest(verdicts) v (verdict)), entry_ords, entry_books, entry_keys, entry_ats, entry_untils,
            entry_bodies, strike_ords, strike_books, strike_keys);
    END IF;
    RETURN NEXT;
END $$;

-- Tasks that cannot be run wait for a person, each if it is still at the version that was seen. What they leave to others
-- until then is their slot and their tenant.
CREATE FUNCTION @.set_aside(own bigint, nos bigint[], versions bigint[], reasons text[]) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE free text[];
BEGIN
    WITH aside AS (
        UPDATE @.task_runtimes r SET queue = 4, reason = a.reason, slot = false
        FROM unnest(nos, versions, reasons) a (no, version, reason) JOIN @.task_runtimes was ON was.no = a.no
        WHERE r.no = a.no AND r.version = a.version AND r.queue <> 2
        RETURNING r.no, r.plan, r.tenant, was.slot
    ), left_slots AS (
        UPDATE @.plans p SET slots = p.slots - s.slots
        FROM (SELECT a.plan, count(*)::integer AS slots FROM aside a WHERE a.slot GROUP BY a.plan) s WHERE p.no = s.plan
    ), unlocked AS (
        DELETE FROM @.locks l USING aside a WHERE l.tenant = a.tenant AND l.task = a.no
    )
    SELECT array_agg(a.tenant) INTO free FROM aside a WHERE a.tenant IS NOT NULL;
    IF free IS NOT NULL THEN
        PERFORM @.wake_waiters(free);
    END IF;
    PERFORM @.call_others(own);
END $$;

-- Takes tasks that were picked, each if it is still as it was then: lease, tenant lock and slot at once, or nothing.
-- A plan that has fewer free slots than it is asked for gives none; a task that has its slot keeps it, also when the plan
-- was given fewer since. One that has something for the books which is there
-- already is set aside.
CREATE FUNCTION @.take_tasks(
    own bigint, lock_ms bigint, now_at bigint,
    nos bigint[], expected bigint[], queues smallint[], found_leases bigint[], revisions integer[], new_leases bigint[],
    statuses smallint[], versions bigint[], dones integer[], totals integer[], stages text[], attempts integer[],
    dues bigint[], flagses smallint[], reasons text[], starts bigint[], updates bigint[], ends bigint[],
    bodies text[], crcs bigint[], event_attempts integer[], backoffs bigint[], failures text[], pauses boolean[],
    asked smallint[], all_completed smallint[], some_not smallint[],
    image_ords bigint[], image_crcs bigint[], image_bodies text[],
    waits bigint[], aside bigint[], aside_versions bigint[], aside_reasons text[],
    entry_ords bigint[] DEFAULT NULL, entry_books smallint[] DEFAULT NULL, entry_keys text[] DEFAULT NULL,
    entry_ats bigint[] DEFAULT NULL, entry_untils bigint[] DEFAULT NULL, entry_bodies text[] DEFAULT NULL,
    entry_replaces boolean[] DEFAULT NULL,
    strike_ords bigint[] DEFAULT NULL, strike_books smallint[] DEFAULT NULL, strike_keys text[] DEFAULT NULL
) RETURNS TABLE (taken boolean[], change_ords bigint[], change_plans text[]) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    base bigint := @.begin_write(own);
    clock bigint := @.now_ms();
    first bigint := (SELECT n.first_lease FROM @.nodes n WHERE n.session = own);
    m_ords bigint[]; m_nos bigint[]; m_plans bigint[]; m_froms smallint[]; m_tos smallint[]; m_slots integer[];
    m_tenants text[]; m_ats bigint[]; m_asks boolean[]; free bigint[];
    there bigint[]; refused_ords bigint[];
BEGIN
    IF entry_ords IS NOT NULL THEN
        there := @.entries_there(entry_books, entry_keys, entry_ats, entry_replaces);
        refused_ords := ARRAY(SELECT entry_ords[k.place] FROM unnest(there) k (place));
    END IF;
    -- A row that somebody else has a hand on, a person at a prompt perhaps, is passed over: nobody waits for it here.
    free := ARRAY(
        SELECT r.no FROM unnest(nos) i (no) JOIN @.task_runtimes r ON r.no = i.no FOR UPDATE OF r SKIP LOCKED
    );
    WITH input AS MATERIALIZED (
        SELECT * FROM unnest(nos, expected, queues, found_leases, revisions, new_leases, statuses, versions, dones, totals, stages,
            attempts, dues, flagses, reasons, starts, updates, ends, bodies, crcs, event_attempts, backoffs, failures, pauses)
            WITH ORDINALITY i (no, expected, queue, found_lease, revision, lease, status, version, done, total, stage, attempt,
            due_at, flags, reason, started_at, updated_at, ended_at, body, crc, event_attempt, backoff, failure, pauses, ord)
    ), found AS MATERIALIZED (
        SELECT i.*, i.status IN (1, 6) AS active, r.plan, r.status AS was, r.slot, r.tenant, p.max_concurrency - p.slots AS room,
            r.version = i.expected AND r.queue = i.queue AND r.lease = i.found_lease AND p.revision = i.revision
            AND i.lease >= first AND r.no = ANY (free) AND (p.status = 2 OR r.status = 6) AND coalesce(i.ord <> ALL (refused_ords), true)
            AND NOT EXISTS (
                SELECT FROM @.locks l WHERE l.tenant = r.tenant AND l.task <> r.no AND l.expires_at >= clock
            ) AS as_picked
        FROM input i LEFT JOIN @.task_runtimes r ON r.no = i.no LEFT JOIN @.plans p ON p.no = r.plan
    ), judged AS MATERIALIZED (
        SELECT f.*, coalesce(f.as_picked AND (f.slot OR f.room > 0 AND f.room >= sum(
            (f.as_picked AND f.active AND NOT f.slot)::integer) OVER (PARTITION BY f.plan)), false) AS ok
        FROM found f
    ), updated AS (
        UPDATE @.task_runtimes r SET version = j.version, done = j.done, total = j.total, stage = j.stage, attempt = j.attempt,
            due_at = j.due_at, flags = j.flags, reason = j.reason, started_at = j.started_at, updated_at = j.updated_at,
            ended_at = j.ended_at, status = j.status, slot = j.active, progress = NULL, wake_at = NULL,
            lease = CASE WHEN j.active THEN j.lease ELSE 0 END,
            last_event = CASE WHEN j.body IS NULL THEN r.last_event ELSE base + 2 * j.ord - 1 END,
            queue = CASE WHEN j.active THEN 2 ELSE @.idle_queue(j.status, j.flags) END
        FROM judged j WHERE r.no = j.no AND j.ok
    ), logged AS (
        INSERT INTO @.events (pos, task, seq, crc, attempt_number, backoff_delay_ms, failure_reason, body)
        SELECT base + 2 * j.ord - 1, j.no, j.expected + 1, j.crc, j.event_attempt, j.backoff, j.failure, j.body
        FROM judged j WHERE j.ok AND j.body IS NOT NULL
    ), locked AS (
        -- The position is the fence: it only ever grows, also when the lock was given back in between.
        INSERT INTO @.locks AS l (tenant, task, since, fence, expires_at)
        SELECT j.tenant, j.no, now_at, base + 2 * j.ord - 1, clock + lock_ms
        FROM judged j WHERE j.ok AND j.tenant IS NOT NULL AND (j.active OR j.status = 2)
        ON CONFLICT (tenant) DO UPDATE SET task = excluded.task, fence = excluded.fence, expires_at = excluded.expires_at,
            since = CASE WHEN l.task = excluded.task THEN l.since ELSE excluded.since END
    )
    SELECT array_agg(j.ok),
        array_agg(j.ord) FILTER (WHERE j.ok), array_agg(j.no) FILTER (WHERE j.ok),
        array_agg(j.plan) FILTER (WHERE j.ok), array_agg(j.was) FILTER (WHERE j.ok),
        array_agg(j.status) FILTER (WHERE j.ok),
        array_agg(j.active::integer - j.slot::integer) FILTER (WHERE j.ok),
        array_agg(j.tenant) FILTER (WHERE j.ok), array_agg(j.updated_at) FILTER (WHERE j.ok),
        array_agg(j.pauses) FILTER (WHERE j.ok)
    INTO taken, m_ords, m_nos, m_plans, m_froms, m_tos, m_slots, m_tenants, m_ats, m_asks
    FROM (SELECT * FROM judged j ORDER BY j.ord) j;

    UPDATE @.counters SET position = base + 2 * cardinality(nos);
    IF m_ords IS NOT NULL THEN
        SELECT array_agg(s.ord ORDER BY s.ord), array_agg(s.plan ORDER BY s.ord) INTO change_ords, change_plans
        FROM @.settle(own, base, m_ords, m_nos, m_plans, m_froms, m_tos, m_slots, m_tenants, m_ats,
            m_asks, asked, all_completed, some_not) s;
    END IF;
    IF cardinality(image_ords) > 0 THEN
        INSERT INTO @.snapshots (task, seq, pos, crc, body)
        SELECT nos[s.ord], versions[s.ord], r.last_event, s.crc, s.body
        FROM unnest(image_ords, image_crcs, image_bodies) s (ord, crc, body)
        JOIN @.task_runtimes r ON r.no = nos[s.ord] WHERE taken[s.ord]
        ON CONFLICT (task) DO UPDATE SET seq = excluded.seq, pos = excluded.pos, crc = excluded.crc, body = excluded.body;
    END IF;
    IF cardinality(waits) > 0 THEN
        UPDATE @.task_runtimes r SET queue = 1 FROM unnest(waits) w (no)
        WHERE r.no = w.no AND r.queue = 0 AND EXISTS (
            SELECT FROM @.locks l WHERE l.tenant = r.tenant AND l.task <> r.no AND l.expires_at >= clock
        );
    END IF;
    IF cardinality(aside) > 0 THEN
        PERFORM @.set_aside(own, aside, aside_versions, aside_reasons);
    END IF;
    IF there IS NOT NULL THEN
        PERFORM @.set_aside(own, array_agg(nos[entry_ords[k.place]]), array_agg(expected[entry_ords[k.place]]),
            array_agg('what it has for the books is there already: ' || entry_keys[k.place]))
        FROM unnest(there) k (place);
    END IF;
    IF entry_ords IS NOT NULL THEN
        PERFORM @.write_entries(taken, entry_ords, entry_books, entry_keys, entry_ats, entry_untils,
            entry_bodies, strike_ords, strike_books, strike_keys);
    END IF;
    RETURN NEXT;
END $$;

-- A plan's own status. `lets_go`: a person wants it to run; `counts`: its version grows in any case. Verdicts: 0 changed or as it was, 2 at another version, 4 refused, 5 what it has for the books is
-- there already.
CREATE FUNCTION @.change_plan(
    own bigint, plan_no bigint, expected bigint, asked smallint[], lets_go boolean, counts boolean, by_whom text, at bigint,
    request_key text, request_digest bytea, request_answer text,
    entry_ords bigint[] DEFAULT NULL, entry_books smallint[] DEFAULT NULL, entry_keys text[] DEFAULT NULL,
    entry_ats bigint[] DEFAULT NULL, entry_untils bigint[] DEFAULT NULL, entry_bodies text[] DEFAULT NULL,
    entry_replaces boolean[] DEFAULT NULL,
    strike_ords bigint[] DEFAULT NULL, strike_books smallint[] DEFAULT NULL, strike_keys text[] DEFAULT NULL
) RETURNS TABLE (verdict integer, status smallint, version bigint, there bigint[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE base bigint := @.begin_write(own); p @.plans; over boolean; next smallint; was_held boolean := false;
BEGIN
    SELECT * INTO p FROM @.plans WHERE no = plan_no;
    status := p.status;
    version := p.version;
    next := coalesce(asked[p.status + 1], p.status);
    IF entry_ords IS NOT NULL THEN
        there := @.entries_there(entry_books, entry_keys, entry_ats, entry_replaces);
    END IF;
    verdict := CASE WHEN expected <> p.version THEN 2 WHEN next < 0 THEN 4 WHEN there IS NOT NULL THEN 5 ELSE 0 END;
    IF verdict = 0 AND lets_go THEN
        was_held := p.status = 2 AND @.is_held(p.automatic, p.go);
        UPDATE @.plans SET go = @.go_now(own, p.automatic) WHERE no = plan_no;
    END IF;
    IF verdict = 0 AND (next <> p.status OR change_plan.counts OR was_held) THEN
        over := p.counts[1] + p.counts[2] + p.counts[3] + p.counts[7] = 0;
        UPDATE @.plans SET status = next, version = version + 1,
            changed_by = CASE WHEN next = p.status AND NOT was_held THEN p.changed_by ELSE by_whom END,
            started_at = CASE WHEN next = 2 THEN coalesce(started_at, at) ELSE started_at END,
            ended_at = CASE WHEN next = p.status THEN p.ended_at WHEN next >= 4 AND over THEN at END
        WHERE no = plan_no;
        INSERT INTO @.events (pos, task, seq, crc, body)
        VALUES (base + 1, -plan_no, p.version + 1, 0, @.plan_body(next, at, by_whom));
        UPDATE @.counters SET position = base + 1;
        IF next = 2 THEN
            PERFORM @.call_others(own);
        END IF;
    END IF;
    IF verdict = 0 AND request_key IS NOT NULL THEN
        PERFORM @.keep_request(request_key, request_digest, at, request_answer);
    END IF;
    IF entry_ords IS NOT NULL THEN
        PERFORM @.write_entries(ARRAY[verdict = 0], entry_ords, entry_books, entry_keys, entry_ats, entry_untils,
            entry_bodies, strike_ords, strike_books, strike_keys);
    END IF;
    RETURN NEXT;
END $$;

CREATE FUNCTION @.keep_request(new_key text, new_digest bytea, new_at bigint, new_answer text) RETURNS void LANGUAGE sql AS $$
    -- A few at a time, so that there are never many, and nobody waits.
    DELETE FROM @.requests WHERE key IN (SELECT key FROM @.requests WHERE at <= new_at - 86400000 ORDER BY at LIMIT 8);
    INSERT INTO @.requests VALUES (new_key, new_digest, new_at, new_answer)
    ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, at = excluded.at, answer = excluded.answer;
$$;

CREATE FUNCTION @.note_tasks(
    own bigint, nos bigint[], dones bigint[], totals bigint[],
    log_nos bigint[], log_stages text[], log_attempts integer[], log_ats bigint[], log_bytes bytea[]
) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM @.begin_write(own);
    UPDATE @.task_runtimes r SET progress = n.done, progress_of = n.total
    FROM (SELECT DISTINCT ON (t.no) * FROM unnest(nos, dones, totals) WITH ORDINALITY t (no, done, total, ord) ORDER BY t.no, t.ord DESC) n
    WHERE r.no = n.no;
    INSERT INTO @.logs (task, stage, attempt, at, bytes)
    SELECT l.no, l.stage, l.attempt, l.at, l.bytes
    FROM unnest(log_nos, log_stages, log_attempts, log_ats, log_bytes) WITH ORDINALITY l (no, stage, attempt, at, bytes, i)
    WHERE EXISTS (SELECT FROM @.task_runtimes r WHERE r.no = l.no) ORDER BY l.i;
END $$;
