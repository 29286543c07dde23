-- Facts for the alerts (clawq/rules/alerts.py) that nobody else asks for. Flat in the number of jobs.

-- name: oldest
-- The job that has waited longest of each tenant, band and kind, with what it or its lane answers.
SELECT j.id, j.kind, j.tenant, j.band, j.ready_at, j.expires_at, coalesce(j.parked, l.reason) AS reason
FROM (SELECT DISTINCT band, tenant, kind FROM tally WHERE state = 'queued') t
CROSS JOIN jobs j ON j.id = (
    SELECT o.id FROM jobs o INDEXED BY jobs_oldest
    WHERE o.state = 'queued' AND o.tenant = t.tenant AND o.band = t.band AND o.kind = t.kind
    ORDER BY o.ready_at LIMIT 1)
LEFT JOIN lanes l ON l.band = j.band AND l.tenant = j.tenant AND l.kind = j.kind AND l.needs = j.needs;

-- name: gates
-- Since when the lanes that give a reason have given it, and how many jobs are in them.
SELECT l.reason, min(l.since) AS since, sum(t.n) AS jobs
FROM lanes l CROSS JOIN tally t
    ON t.state = 'queued' AND t.band = l.band AND t.tenant = l.tenant AND t.kind = l.kind AND t.needs = l.needs
WHERE l.reason IS NOT NULL GROUP BY l.reason;

-- name: late_retries
-- Among the last two hundred starts of a day: retries that came after the deadline, which no rule allows.
SELECT DISTINCT j.id FROM (
    SELECT job_id, number, claimed_at FROM attempts INDEXED BY attempts_started
    WHERE claimed_at > :since ORDER BY claimed_at DESC LIMIT 200
) a CROSS JOIN jobs j ON j.id = a.job_id
WHERE a.number > 1 AND a.claimed_at > j.deadline_at ORDER BY j.id;

-- name: old_keys
-- The latest of a small table.
SELECT kind, tenant, key, job_id, ended_ms, at FROM old_keys WHERE at > :since ORDER BY at DESC LIMIT 5;

-- name: took
-- How long attempts took, in steps of the time at which they were claimed: of the last thousand.
SELECT claimed_at / :step AS step, avg(ended_at - started_at) AS took FROM (
    SELECT claimed_at, started_at, ended_at FROM attempts INDEXED BY attempts_started
    WHERE claimed_at > :since ORDER BY claimed_at DESC LIMIT 1000
) WHERE ended_at IS NOT NULL AND started_at IS NOT NULL GROUP BY 1;
