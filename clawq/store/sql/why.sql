-- name: job
-- Where a job stands.
SELECT id AS job_id, state, band, tenant, kind, needs, rank, exclusive, parked, root_id, run_after, ready_at,
    changed_at, expires_at, command IS NULL AS bare
FROM jobs WHERE id = ?;

-- name: lane
-- Why the head of a lane was last refused, and what it was promised.
SELECT reason, measured, limit_value, since, clears_at, short_job, short_since, promised_at FROM lanes
WHERE band = :band AND tenant = :tenant AND kind = :kind AND needs = :needs;

-- name: behind
-- Is there one before it in its lane? How many says nothing about when.
SELECT EXISTS (
    SELECT 1 FROM jobs INDEXED BY jobs_lane
    WHERE state = 'queued' AND parked IS NULL AND band = :band AND tenant = :tenant AND kind = :kind
        AND needs = :needs AND (rank, id) < (:rank, :job_id)) AS behind;

-- name: pauses
-- Every pause that keeps this job back.
SELECT scope, name, since FROM pauses
WHERE scope = 'all' OR (scope = 'tenant' AND name = :tenant) OR (scope = 'kind' AND name = :kind)
    OR (scope = 'band' AND name = CAST(:band AS TEXT))
    OR (scope = 'resource' AND name IN (SELECT value FROM json_each(:resources)))
ORDER BY since, scope, name;

-- name: waits
-- For whom a job waits, or since when it has wanted its slots back and which it lacks.
SELECT a.waiting_since, a.back_at, a.back_reason, coalesce(a.awaits, '[]') AS awaits
FROM jobs j CROSS JOIN attempts a ON a.token = j.token WHERE j.id = ?;

-- name: open
-- Those of the jobs that have not ended.
SELECT j.id FROM json_each(?) AS wanted CROSS JOIN jobs j ON j.id = wanted.value
WHERE j.ended_at IS NULL AND j.state <> 'unknown' ORDER BY wanted.key;

-- name: holders
-- Who is under way: a few rows, looked through for those that hold what the job needs.
SELECT id, kind, tenant, needs, exclusive, root_id, started_at, state FROM jobs INDEXED BY jobs_active
WHERE token IS NOT NULL ORDER BY id;

-- name: reservations
-- Heads that were promised what they have reserved, the earliest first; one row a lane.
SELECT short_job, needs, promised_at FROM lanes
WHERE short_job IS NOT NULL AND promised_at IS NOT NULL AND needs <> '' ORDER BY promised_at, short_job;
