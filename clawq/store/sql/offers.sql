-- name: kinds
-- The configured ones, each with its command, and those that only jobs have (value NULL).
SELECT k.key, (SELECT group_concat(value, ' ') FROM json_each(k.value, '$.command')), 1
FROM json_each(:body, '$.kinds') AS k
UNION ALL SELECT DISTINCT kind, NULL, 0 FROM tally WHERE kind NOT IN (SELECT key FROM json_each(:body, '$.kinds'))
ORDER BY 3 DESC, 1;

-- name: limits
-- Resources or budgets (:table), with their limits.
SELECT key, value ->> 'limit' FROM json_each(:body, '$.' || :table) ORDER BY key;

-- name: tenants
-- Those that have a table of their own and those that have jobs.
SELECT key FROM json_each(:body, '$.tenants') UNION SELECT tenant FROM tally ORDER BY 1 LIMIT :limit;

-- name: paused
-- What there is to resume.
SELECT name FROM pauses WHERE scope = :scope ORDER BY name;

-- name: reasons
-- Words that retries are counted under: those that kinds have for their output, and those used lately.
SELECT e.value ->> 'reason' AS reason
FROM json_each(:body, '$.kinds') AS k CROSS JOIN json_each(k.value, '$.errors') AS e
WHERE reason IS NOT NULL
UNION SELECT reason FROM (SELECT reason FROM attempts WHERE token > 0 ORDER BY token DESC LIMIT 500)
WHERE reason IS NOT NULL
ORDER BY 1;

-- name: attempts
-- Of one job, the last first.
SELECT number, outcome FROM attempts WHERE job_id = :id ORDER BY number DESC LIMIT :limit;

-- name: newest
-- The latest jobs, whatever they do.
SELECT id, kind, state, command ->> 1 FROM jobs ORDER BY id DESC LIMIT :limit;

-- name: lanes
-- Among how many ranges of jobs_oldest the queued are.
SELECT count(*) FROM (SELECT DISTINCT tenant, band, kind FROM tally WHERE state = 'queued');

-- name: queued
-- The latest queued: the last of each range of jobs_oldest, then the latest of them.
SELECT j.id, j.kind, j.state, NULL FROM (
    SELECT DISTINCT tenant, band, kind FROM tally WHERE state = 'queued' LIMIT :limit
) t CROSS JOIN jobs j ON j.id IN (
    SELECT q.id FROM jobs q INDEXED BY jobs_oldest
    WHERE q.state = 'queued' AND q.tenant = t.tenant AND q.band = t.band AND q.kind = t.kind
    ORDER BY q.ready_at DESC LIMIT :each)
ORDER BY j.id DESC LIMIT :limit;

-- name: aside
-- The latest scheduled, held or unknown.
SELECT id, kind, state, command ->> 1 FROM jobs INDEXED BY jobs_aside
WHERE token IS NULL AND ended_at IS NULL AND state <> 'queued' AND state = :state ORDER BY id DESC LIMIT :limit;

-- name: active
-- The latest that run.
SELECT id, kind, state, NULL FROM jobs INDEXED BY jobs_active WHERE token IS NOT NULL ORDER BY id DESC LIMIT :limit;

-- name: ended
-- Those that came to this end last. Questions are not tried again.
SELECT id, kind, state, NULL FROM jobs INDEXED BY jobs_ended
WHERE ended_at IS NOT NULL AND state = :state AND kind <> 'ask' ORDER BY ended_at DESC LIMIT :limit;

-- name: ran
-- Those whose agents started last: only they have output.
SELECT j.id, j.kind, j.state, NULL FROM (
    SELECT DISTINCT job_id FROM (SELECT job_id FROM attempts WHERE token > 0 ORDER BY token DESC LIMIT :limit)
) t CROSS JOIN jobs j ON j.id = t.job_id ORDER BY j.id DESC;
