-- The ledger of side effects: what agents record before and after they do something that must not happen twice.

-- name: find_job
-- A key of the job's own, and whether an attempt that is under way has it.
SELECT id, job_id, state, token, begun_at, settled_at,
    EXISTS (SELECT 1 FROM jobs j WHERE j.id = e.job_id AND j.token = e.token) AS held
FROM effects e INDEXED BY effects_job WHERE scope = 'job' AND job_id = :job_id AND key = :key;

-- name: find_tenant
-- The same of a key that all jobs of the tenant share.
SELECT id, job_id, state, token, begun_at, settled_at,
    EXISTS (SELECT 1 FROM jobs j WHERE j.id = e.job_id AND j.token = e.token) AS held
FROM effects e INDEXED BY effects_tenant WHERE scope = 'tenant' AND tenant = :tenant AND key = :key;

-- name: begin
-- A key that nobody has used.
INSERT INTO effects (scope, tenant, job_id, key, state, token, begun_at)
VALUES (:scope, :tenant, :job_id, :key, 'begun', :token, :now);

-- name: begin_again
-- What did not happen may be begun again, by another job too where the tenant shares it.
UPDATE effects SET state = 'begun', job_id = :job_id, token = :token, begun_at = :now, settled_at = NULL
WHERE id = :id AND state = 'failed';

-- name: settle
-- By the attempt that began it, and by no other.
UPDATE effects SET state = :state, settled_at = :now WHERE id = :id AND token = :token AND state = 'begun';

-- name: settle_open
-- By a person or a probe, who speak for all that the job left open.
UPDATE effects SET state = :state, settled_at = :now WHERE job_id = :job_id AND state = 'begun';

-- name: open
-- Begun and not settled, by whichever attempt of the job.
SELECT key FROM effects INDEXED BY effects_of WHERE job_id = :job_id AND state = 'begun' ORDER BY id;

-- name: open_of
-- The same of several jobs at once.
SELECT e.job_id, e.key, e.scope, e.begun_at FROM json_each(:ids) AS wanted
CROSS JOIN effects e INDEXED BY effects_of ON e.job_id = wanted.value AND e.state = 'begun'
ORDER BY wanted.key, e.id;

-- name: of_job
-- Everything that one job was the last to begin.
SELECT e.key, e.scope, e.state, a.number AS attempt, e.begun_at, e.settled_at
FROM effects e INDEXED BY effects_of LEFT JOIN attempts a ON a.token = e.token
WHERE e.job_id = :job_id ORDER BY e.id;
