-- Unknown jobs, and what their kind's probe says of them.

-- name: due
-- The longest unknown first; with what a probe's command and environment are made of.
SELECT p.number, j.id, j.kind, j.tenant, j.band, j.tries, j.command, j.payload, j.cwd, j.path, j.env, j.timeout_ms,
    j.deadline_at
FROM probes p CROSS JOIN jobs j ON j.id = p.job_id ORDER BY p.since, p.job_id LIMIT :most;

-- name: any_due
-- One look at a table that is nearly always empty.
SELECT EXISTS (SELECT 1 FROM probes);

-- name: is_due
-- A person may be faster than the probe that is being asked.
SELECT EXISTS (SELECT 1 FROM probes WHERE job_id = :job_id AND number = :number);

-- name: forget
-- It answered, or its kind has none. The number keeps a late answer from counting for a later attempt.
DELETE FROM probes WHERE job_id = :job_id AND number = :number RETURNING job_id;

-- name: policy
-- As of an attempt that ends (attempts.policy), of a job that has none under way.
SELECT kind, band, attempts, max_attempts, on_lost, accepted_at, deadline_at, cancel_at IS NOT NULL AS cancel,
    needs, limits_met, forks_failed, NULL AS told
FROM jobs WHERE id = :job_id AND state = 'unknown';

-- name: last_end
-- How the attempt ended that left the job unknown.
SELECT outcome, error_class, exit_code, signal, charged, error, reason, resource FROM attempts
WHERE job_id = :job_id AND number = :number AND outcome IS NOT NULL;

-- name: it_happened
-- The probe's word is as good as a person's.
UPDATE jobs SET state = 'succeeded', reason = :reason, changed_at = :now, ended_at = :now, cancel_at = NULL,
    last_error = NULL, error_class = NULL
WHERE id = :job_id AND state = 'unknown' RETURNING id;

-- name: it_did_not
-- Goes on as the rule for retries says; the attempt was charged when it ended.
UPDATE jobs SET state = :state, reason = :reason, changed_at = :now, cancel_at = NULL,
    run_after = coalesce(:run_after, run_after),
    ready_at = iif(:state = 'queued', :now, NULL), ended_at = iif(:state IN ('dead', 'cancelled'), :now, NULL)
WHERE id = :job_id AND state = 'unknown' RETURNING id;

-- name: nobody_knows
-- What the person reads who has to look now.
UPDATE jobs SET last_error = coalesce(last_error || '; ', '') || :said
WHERE id = :job_id AND state = 'unknown' RETURNING id;

-- name: note
-- The state stays, so that no trigger tells of it.
INSERT INTO events (job_id, at, from_state, to_state, reason) VALUES (:job_id, :now, 'unknown', 'unknown', :reason);
