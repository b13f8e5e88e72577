-- Who may write, until when, and how others are called.

CREATE FUNCTION @.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- Begins every write: nobody else writes until this transaction is over. Answers the last position given.
CREATE FUNCTION @.begin_write(own bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE base bigint;
BEGIN
    SELECT position INTO base FROM @.counters FOR UPDATE;
    IF own IS NOT NULL AND NOT EXISTS (SELECT FROM @.nodes n WHERE n.session = own AND NOT n.ended) THEN
        RAISE EXCEPTION 'the session of this node has ended' USING ERRCODE = 'MP001';
    END IF;
    RETURN base;
END $$;

-- Tells other nodes that there may be something for them. Where there is no other, it costs nothing.
CREATE FUNCTION @.call_others(own bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM @.nodes n WHERE NOT n.ended AND n.session IS DISTINCT FROM own) THEN
        UPDATE @.counters SET calls = calls + 1;
        PERFORM pg_notify('@channel', coalesce(own, 0)::text);
    END IF;
END $$;

-- Its tasks are orphans from here on.
CREATE FUNCTION @.end_sessions(sessions bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @.nodes SET ended = true WHERE session = ANY (sessions);
    UPDATE @.task_runtimes SET queue = 7 WHERE queue = 2 AND (lease >> 40) = ANY (sessions);
END $$;

-- The first of each plan in line for a tenant that nobody has any more: a plan that is paused must not keep another
-- plan's task waiting, and waking everybody would cost as much as there are waiters. What was set going by itself waits for
-- none of its plan that was not. True when somebody was woken.
CREATE FUNCTION @.wake_waiters(tenants text[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @.task_runtimes r SET queue = 0 FROM (
        (SELECT DISTINCT ON (w.tenant, w.plan) w.no
        FROM (SELECT DISTINCT t.tenant COLLATE "C" AS tenant FROM unnest(tenants) t (tenant)) t
        JOIN @.task_runtimes w ON w.tenant = t.tenant AND w.queue = 1
        WHERE NOT EXISTS (SELECT FROM @.locks l WHERE l.tenant = t.tenant)
        ORDER BY w.tenant, w.plan, w.rank, w.no)
        UNION
        SELECT w.no FROM (SELECT DISTINCT t.tenant COLLATE "C" AS tenant FROM unnest(tenants) t (tenant)) t
        JOIN @.task_runtimes w ON w.tenant = t.tenant AND w.queue = 1 AND w.go > 0
        JOIN @.plans p ON p.no = w.plan AND p.go = 0
        WHERE NOT EXISTS (SELECT FROM @.locks l WHERE l.tenant = t.tenant)
    ) first WHERE r.no = first.no;
    RETURN FOUND;
END $$;

-- Time in which nobody could write counts against nobody. If any node was last heard of longer ago than those that live
-- need to say that they do, every lease and every lock is put off by the rest: a lease no further than a beat would.
-- Whoever judges begins with this, under the lock.
CREATE FUNCTION @.forgive(at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE late bigint;
BEGIN
    SELECT at - c.heard_at - coalesce((SELECT max(n.patience_ms) FROM @.nodes n WHERE NOT n.ended), 0) INTO late FROM @.counters c;
    IF late > 0 THEN
        UPDATE @.nodes n SET expires_at = greatest(n.expires_at, least(n.expires_at + late, at + n.lease_ms)) WHERE NOT n.ended;
        UPDATE @.locks l SET expires_at = l.expires_at + late;
    END IF;
    UPDATE @.counters SET heard_at = at;
END $$;

-- Ends what has run out, by the clock of this server: sessions of others, and tenant locks.
CREATE FUNCTION @.reap(own bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE gone bigint[]; free text[]; at bigint := @.now_ms();
BEGIN
    PERFORM @.forgive(at);
    SELECT array_agg(n.session) INTO gone FROM @.nodes n
    WHERE NOT n.ended AND n.expires_at < at AND n.session IS DISTINCT FROM own;
    IF gone IS NOT NULL THEN
        PERFORM @.end_sessions(gone);
    END IF;
    WITH expired AS (DELETE FROM @.locks l WHERE l.expires_at < at RETURNING l.tenant)
    SELECT array_agg(e.tenant) INTO free FROM expired e;
    IF free IS NOT NULL THEN
        PERFORM @.wake_waiters(free);
    END IF;
    IF gone IS NOT NULL OR free IS NOT NULL THEN
        PERFORM @.call_others(own);
        RETURN true;
    END IF;
    RETURN false;
END $$;

-- The same, where it is not yet known whether there is anything to do.
CREATE FUNCTION @.reap_if_due(own bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE at bigint := @.now_ms();
BEGIN
    IF EXISTS (SELECT FROM @.nodes n WHERE NOT n.ended AND n.expires_at < at AND n.session IS DISTINCT FROM own)
        OR EXISTS (SELECT FROM @.locks l WHERE l.expires_at < at) THEN
        PERFORM @.begin_write(own);
        PERFORM @.reap(own);
    END IF;
END $$;

-- A new session under a name; whoever had the name has lost it.
CREATE FUNCTION @.register(node text, boot text, lease_ms bigint, patience_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE before bigint; given bigint; at bigint;
BEGIN
    PERFORM @.begin_write(NULL);
    at := @.now_ms();
    PERFORM @.forgive(at);
    SELECT n.session INTO before FROM @.nodes n WHERE n.name = node;
    IF before IS NOT NULL THEN
        PERFORM @.end_sessions(ARRAY[before]);
    END IF;
    UPDATE @.counters SET session = session + 1 RETURNING session INTO given;
    INSERT INTO @.nodes VALUES (node, given, boot, false, at, at, at + lease_ms, 0, 0, 0, lease_ms, patience_ms)
    ON CONFLICT (name) DO UPDATE SET session = excluded.session, boot_id = excluded.boot_id, ended = false,
        started_at = excluded.started_at, seen_at = excluded.seen_at, expires_at = excluded.expires_at,
        in_hand = 0, capacity = 0, lease_ms = excluded.lease_ms, patience_ms = excluded.patience_ms;
    IF before IS NOT NULL THEN
        PERFORM @.call_others(given);
    END IF;
    RETURN given;
END $$;

-- Which of these leases were given out by claims whose answers were lost. A claim that has not arrived by now takes
-- nothing any more: nobody would look for what it takes.
CREATE FUNCTION @.find_leases(own bigint, nos bigint[], leases bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM @.begin_write(own);
    UPDATE @.nodes n SET first_lease = greatest(n.first_lease, (SELECT max(u.lease) + 1 FROM unnest(leases) u (lease)))
    WHERE n.session = own;
    RETURN QUERY
    SELECT r.lease FROM unnest(nos, leases) u (no, lease) JOIN @.task_runtimes r ON r.no = u.no AND r.lease = u.lease
    WHERE r.queue = 2;
END $$;

-- `state`: 0 renewed, 1 the session has ended, 2 somebody else has the name now. One that was begun by this very process,
-- which did not hear of it, is nobody else's.
CREATE FUNCTION @.beat(node text, boot text, own bigint, lease_ms bigint, lock_ms bigint, hand bigint, most bigint)
RETURNS TABLE (state integer, look_again bigint, clock bigint) LANGUAGE plpgsql AS $$
DECLARE mine @.nodes; at bigint; freed boolean;
BEGIN
    PERFORM @.begin_write(NULL);
    at := @.now_ms();
    clock := at;
    SELECT n.* INTO mine FROM @.nodes n WHERE n.name = node;
    IF mine.session IS DISTINCT FROM own OR mine.ended THEN
        state := CASE WHEN mine.session IS NULL OR mine.session = own OR mine.boot_id = boot THEN 1 ELSE 2 END;
        RETURN NEXT;
        RETURN;
    END IF;
    UPDATE @.nodes SET seen_at = at, expires_at = at + beat.lease_ms, in_hand = hand, capacity = most WHERE name = node;
    PERFORM @.see(own);
    freed := @.reap(own);
    -- A tenant stays closed for as long as somebody may go on with its task by himself.
    UPDATE @.locks l SET expires_at = at + lock_ms FROM @.task_runtimes r JOIN @.plans p ON p.no = r.plan
    WHERE l.expires_at < at + lock_ms * 2 / 3 AND r.no = l.task AND (r.queue IS DISTINCT FROM 7 OR p.automatic IS NOT FALSE);
    DELETE FROM @.letters WHERE posted_at < at - 3600000;
    DELETE FROM @.nodes n WHERE n.ended AND n.seen_at < at - 3600000;
    state := 0;
    SELECT CASE WHEN freed THEN 0 WHEN min(n.expires_at) IS NOT NULL THEN greatest(min(n.expires_at) - at + 1, 1) END INTO look_again
    FROM @.nodes n WHERE NOT n.ended AND n.session <> own;
    RETURN NEXT;
END $$;

-- A visitor waits for somebody: others' leases are looked at, though it has none.
CREATE FUNCTION @.look() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM @.begin_write(NULL);
    PERFORM @.reap(NULL);
    RETURN @.now_ms();
END $$;

CREATE FUNCTION @.leave(own bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM @.begin_write(NULL);
    UPDATE @.nodes n SET seen_at = @.now_ms() WHERE n.session = own AND NOT n.ended;
    IF FOUND THEN
        PERFORM @.see(own);
    END IF;
    PERFORM @.end_sessions(ARRAY[own]);
    PERFORM @.call_others(own);
END $$;

-- For the live node that holds the task; null when nobody does. Posted again, it is still one letter.
CREATE FUNCTION @.post_letter(own bigint, letter_id text, to_task text, words text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE given bigint; at bigint;
BEGIN
    PERFORM @.begin_write(NULL);
    SELECT l.no INTO given FROM @.letters l WHERE l.id = letter_id;
    IF FOUND THEN
        RETURN given;
    END IF;
    IF @.reap(own) THEN
        PERFORM @.call_others(NULL);
    END IF;
    at := @.now_ms();
    INSERT INTO @.letters (id, session, task, body, posted_at)
    SELECT letter_id, n.session, c.id, words, at FROM @.task_configs c JOIN @.task_runtimes r ON r.no = c.no
    JOIN @.nodes n ON n.session = r.lease >> 40 AND NOT n.ended
    WHERE c.id = to_task AND r.queue = 2
    RETURNING no INTO given;
    IF given IS NOT NULL THEN
        PERFORM @.call_others(own);
    END IF;
    RETURN given;
END $$;

-- Whoever asked may be a visitor, whom nothing else would call.
CREATE FUNCTION @.answer_letter(own bigint, letter bigint, words text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM @.begin_write(NULL);
    UPDATE @.letters SET answer = words WHERE no = letter AND answer IS NULL;
    UPDATE @.counters SET calls = calls + 1;
    PERFORM pg_notify('@channel', coalesce(own, 0)::text);
END $$;
