-- A job that waits for others: how it gives its slots away, and how it gets them back.

-- name: standing
-- What `clawq wait` looks at again and again: is it still its own, does it wait, and does it want its slots back?
SELECT j.state, j.tenant, a.back_at FROM jobs j CROSS JOIN attempts a ON a.token = j.token
WHERE j.id = :job_id AND j.token = :token;

-- name: mine
-- The children that this attempt asked for, or got back. Nobody waits for an answer without saying so.
SELECT id FROM jobs INDEXED BY jobs_children WHERE parent_id = :job_id AND asked_by = :token AND kind <> 'ask'
ORDER BY id;

-- name: strangers
-- Those of the jobs that do not descend from this one; up the tree from each.
SELECT wanted.value FROM json_each(:ids) AS wanted WHERE NOT EXISTS (
    WITH RECURSIVE above(id) AS (
        SELECT parent_id FROM jobs WHERE id = wanted.value
        UNION
        SELECT p.parent_id FROM above CROSS JOIN jobs p ON p.id = above.id WHERE p.parent_id IS NOT NULL)
    SELECT 1 FROM above WHERE id = :job_id)
LIMIT 1;

-- name: missing
-- Pruned, or never there.
SELECT wanted.value FROM json_each(:ids) AS wanted WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id = wanted.value) LIMIT 1;

-- name: never_starts
-- The first of those that have not ended and need what this one, or one above it, keeps while it waits: its own kept
-- slots, an exclusive name of any of them, and a resource of which those above have every slot.
WITH RECURSIVE above(id, parent_id, needs, exclusive) AS (
    SELECT id, parent_id, needs, exclusive FROM jobs WHERE id = :job_id
    UNION
    SELECT p.id, p.parent_id, p.needs, p.exclusive FROM above CROSS JOIN jobs p ON p.id = above.parent_id
    WHERE p.token IS NOT NULL),
kept(name, own, n, most) AS (
    SELECT r.key, max(above.id = :job_id), count(*), r.value ->> 'limit'
    FROM above CROSS JOIN json_each((SELECT body FROM config WHERE id = 1), '$.resources') r
    WHERE r.value ->> 'keep' AND instr(',' || above.needs || ',', ',' || r.key || ',')
    GROUP BY r.key)
SELECT j.id, coalesce((SELECT 'resource ' || name FROM kept
                       WHERE (own OR n >= most) AND instr(',' || j.needs || ',', ',' || name || ',') LIMIT 1),
                      (SELECT 'name ' || j.exclusive FROM above WHERE exclusive = j.exclusive LIMIT 1)) AS what
FROM json_each(:ids) AS wanted CROSS JOIN jobs j ON j.id = wanted.value
WHERE j.ended_at IS NULL AND j.state <> 'unknown' AND what IS NOT NULL LIMIT 1;

-- name: enter
-- Only what the supervisor has seen to run can wait.
UPDATE jobs SET state = 'waiting', reason = :reason, changed_at = :now
WHERE id = :job_id AND token = :token AND state = 'running' RETURNING id;

-- name: note_enter
-- Beside it, in the same transaction.
UPDATE attempts SET waiting_since = :now, back_at = NULL, back_reason = NULL WHERE token = :token;

-- name: note_awaited
-- For whom it waits: what `clawq why` says.
UPDATE attempts SET awaits = :ids WHERE token = :token;

-- name: first
-- Whoever is waited for goes before the others in its lane.
UPDATE jobs SET rank = rank - :first
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('scheduled', 'queued', 'held') AND rank > -:first / 2;

-- name: ask_back
-- The supervisor gives them back; the first time counts.
UPDATE attempts SET back_at = coalesce(back_at, :now)
WHERE token = :token AND EXISTS (SELECT 1 FROM jobs WHERE id = :job_id AND token = :token AND state = 'waiting');

-- name: waiting
-- Those that wait, for whoever watches their `clawq wait`.
SELECT j.token FROM jobs j INDEXED BY jobs_active WHERE j.token IS NOT NULL AND j.state = 'waiting';

-- name: go_on
-- It has its slots again.
UPDATE jobs SET state = 'running', reason = :reason, changed_at = :now
WHERE token = :token AND state = 'waiting' RETURNING id;

-- name: note_go_on
-- Beside it, in the same transaction. Its timeout does not count the wait.
UPDATE attempts SET waited_ms = waited_ms + max(0, :now - waiting_since), waiting_since = NULL, back_at = NULL,
    back_reason = NULL, awaits = NULL
WHERE token = :token RETURNING waited_ms;

-- name: note_lack
-- What it still lacks of its slots.
UPDATE attempts SET back_reason = :reason WHERE token = :token AND back_reason IS NOT :reason;

-- name: states
-- Of the jobs that are waited for.
SELECT j.id, j.state FROM json_each(:ids) AS wanted CROSS JOIN jobs j ON j.id = wanted.value;
