-- name: job
-- Where a job stands.
SELECT state, band, tenant, kind, needs, rank, exclusive, parked, run_after, changed_at
FROM jobs WHERE id = ?;

-- name: lane
-- Why the head of a lane was last refused.
SELECT reason, measured, limit_value, since, retry_at FROM lanes
WHERE band = :band AND tenant = :tenant AND kind = :kind AND needs = :needs;

-- name: ahead
-- How many of its lane come before a job; a thousand is answer enough.
SELECT count(*) AS n FROM (
    SELECT 1 FROM jobs INDEXED BY jobs_lane
    WHERE state = 'queued' AND parked IS NULL AND band = :band AND tenant = :tenant AND kind = :kind
        AND needs = :needs AND (rank, id) < (:rank, :job_id) LIMIT 1000);

-- name: pauses
-- Every pause that keeps this job back.
SELECT scope, name, since FROM pauses
WHERE scope = 'all' OR (scope = 'tenant' AND name = :tenant) OR (scope = 'kind' AND name = :kind)
    OR (scope = 'band' AND name = CAST(:band AS TEXT))
    OR (scope = 'resource' AND name IN (SELECT value FROM json_each(:resources)))
ORDER BY since, scope, name;

-- name: holders
-- Who runs now: a few rows, looked through for those that hold what the job needs.
SELECT id, kind, tenant, needs, exclusive, started_at FROM jobs INDEXED BY jobs_active
WHERE state IN ('starting', 'running', 'waiting') ORDER BY id;
