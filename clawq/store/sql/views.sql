-- name: counts
-- How many jobs are in each state. From the tally, so that a million rows cost what ten do.
SELECT state, sum(n) AS n FROM tally GROUP BY state;

-- name: kinds_seen
-- Kinds that have jobs, whether or not they are still configured.
SELECT DISTINCT kind FROM tally;

-- name: matching
-- How many jobs a filter can find at most: a search stops when it has them all.
SELECT coalesce(sum(n), 0) AS n FROM tally
WHERE (:state IS NULL OR state = :state) AND (:kind IS NULL OR kind = :kind)
    AND (:tenant IS NULL OR tenant = :tenant);

-- name: depth
-- What waits, by tenant, band and kind; the oldest is the first row of a range of jobs_oldest.
SELECT t.tenant, t.band, t.kind, t.queued, o.ready_at AS oldest_at, o.expires_at FROM (
    SELECT tenant, band, kind, sum(n) AS queued FROM tally WHERE state = 'queued' GROUP BY band, tenant, kind
) t LEFT JOIN jobs o ON o.id = (
    SELECT j.id FROM jobs j INDEXED BY jobs_oldest
    WHERE j.state = 'queued' AND j.tenant = t.tenant AND j.band = t.band AND j.kind = t.kind
    ORDER BY j.ready_at LIMIT 1)
ORDER BY t.band, t.tenant, t.kind;

-- name: active
-- What runs. Driven by the small index: without CROSS JOIN the planner may walk every job.
SELECT j.id AS job_id, j.kind, j.state, j.tenant, j.needs, j.exclusive, j.cancel_at,
    a.number AS attempt, a.pid, a.claimed_at, a.started_at, a.lease_ms, a.lease_until, a.worked_at, a.log
FROM jobs j INDEXED BY jobs_active CROSS JOIN attempts a ON a.token = j.token
WHERE j.token IS NOT NULL ORDER BY j.id;

-- name: refused_lanes
-- Lanes whose head was refused, with all that wait in them and the head itself: one seek for each.
SELECT l.band, l.tenant, l.kind, l.needs, l.reason, l.clears_at, t.n,
    (SELECT j.id FROM jobs j INDEXED BY jobs_lane
     WHERE j.state = 'queued' AND j.parked IS NULL AND j.band = l.band AND j.tenant = l.tenant
         AND j.kind = l.kind AND j.needs = l.needs
     ORDER BY j.rank, j.id LIMIT 1) AS job_id
FROM lanes l CROSS JOIN tally t
    ON t.state = 'queued' AND t.band = l.band AND t.tenant = l.tenant AND t.kind = l.kind AND t.needs = l.needs
WHERE l.reason IS NOT NULL;

-- name: parked_names
-- Exclusive names that jobs stand behind: one step of the index for each name, a hundred at most.
WITH RECURSIVE names(name) AS (
    SELECT (SELECT exclusive FROM jobs INDEXED BY jobs_parked
            WHERE state = 'queued' AND parked <> 'workflow_limit' AND exclusive > '' ORDER BY exclusive LIMIT 1)
    UNION ALL
    SELECT (SELECT exclusive FROM jobs INDEXED BY jobs_parked
            WHERE state = 'queued' AND parked <> 'workflow_limit' AND exclusive > names.name ORDER BY exclusive LIMIT 1)
    FROM names WHERE names.name IS NOT NULL LIMIT 100
) SELECT name FROM names WHERE name IS NOT NULL;

-- name: parked_behind
-- How many stand behind one name, by lane, from the index alone; a thousand is answer enough.
SELECT band, tenant, kind, needs, count(*) AS n, min(id) AS job_id FROM (
    SELECT id, band, tenant, kind, needs FROM jobs INDEXED BY jobs_parked
    WHERE state = 'queued' AND parked <> 'workflow_limit' AND exclusive = ? LIMIT 1000
) GROUP BY band, tenant, kind, needs;

-- name: parked_workflow
-- How many stand behind their workflow's limit, by lane, from the index alone; five hundred are answer enough.
SELECT band, tenant, kind, needs, count(*) AS n, min(id) AS job_id FROM (
    SELECT id, band, tenant, kind, needs FROM jobs INDEXED BY jobs_parked_root
    WHERE state = 'queued' AND parked = 'workflow_limit' AND coalesce(root_id, id) > 0 LIMIT 500
) GROUP BY band, tenant, kind, needs;

-- name: refusals
-- Producers that were sent away, the latest first.
SELECT reason, kind, tenant, count, last_at FROM refusals WHERE reason <> 'duplicate' ORDER BY last_at DESC LIMIT 50;

-- name: pauses
-- What is paused, and since when.
SELECT scope, name, since FROM pauses ORDER BY since, scope, name;

-- name: rows
-- Whole rows for ids found by another query, in that query's order.
SELECT j.id, j.kind, j.state, j.tenant, j.band, j.priority, j.attempts, j.max_attempts, j.dedupe_key,
    j.parent_id, j.root_id, j.run_after, j.stale_at, j.deadline_at, j.created_at, j.started_at, j.ended_at,
    j.exit_code, j.last_error, j.error_class, j.command, j.cwd, j.needs
FROM json_each(?) AS wanted CROSS JOIN jobs j ON j.id = wanted.value ORDER BY wanted.key;

-- name: state
-- The cheapest look at one job.
SELECT state FROM jobs WHERE id = ?;

-- name: newest
-- The latest jobs of any state, down the primary key until the limit is reached.
SELECT id FROM jobs WHERE (:kind IS NULL OR kind = :kind) AND (:tenant IS NULL OR tenant = :tenant)
ORDER BY id DESC LIMIT :limit;

-- name: longest_queued
-- Those that have waited longest: the first rows of each range of jobs_oldest, then the oldest of them.
SELECT j.id FROM (
    SELECT DISTINCT tenant, band, kind FROM tally
    WHERE state = 'queued' AND (:kind IS NULL OR kind = :kind) AND (:tenant IS NULL OR tenant = :tenant)
) t CROSS JOIN jobs j ON j.id IN (
    SELECT q.id FROM jobs q INDEXED BY jobs_oldest
    WHERE q.state = 'queued' AND q.tenant = t.tenant AND q.band = t.band AND q.kind = t.kind
    ORDER BY q.ready_at LIMIT :limit)
ORDER BY j.ready_at, j.id LIMIT :limit;

-- name: next_due
-- Scheduled jobs, the next due first.
SELECT id FROM jobs INDEXED BY jobs_due WHERE state = 'scheduled' AND (:kind IS NULL OR kind = :kind)
    AND (:tenant IS NULL OR tenant = :tenant)
ORDER BY run_after, id LIMIT :limit;

-- name: set_aside
-- Held or unknown jobs: what waits for a person, the longest first.
SELECT id FROM jobs INDEXED BY jobs_aside
WHERE token IS NULL AND ended_at IS NULL AND state <> 'queued' AND state = :state
    AND (:kind IS NULL OR kind = :kind) AND (:tenant IS NULL OR tenant = :tenant)
ORDER BY id LIMIT :limit;

-- name: under_way
-- Starting, running or waiting jobs, the latest first.
SELECT id FROM jobs INDEXED BY jobs_active WHERE token IS NOT NULL AND state = :state
    AND (:kind IS NULL OR kind = :kind) AND (:tenant IS NULL OR tenant = :tenant)
ORDER BY id DESC LIMIT :limit;

-- name: latest_ended
-- Jobs that came to this end, the latest first.
SELECT id FROM jobs INDEXED BY jobs_ended WHERE ended_at IS NOT NULL AND state = :state
    AND (:kind IS NULL OR kind = :kind) AND (:tenant IS NULL OR tenant = :tenant)
ORDER BY ended_at DESC, id DESC LIMIT :limit;

-- name: below
-- A job's descendants, each right below its parent; five hundred are answer enough.
WITH RECURSIVE below(id, level) AS (
    SELECT id, 1 FROM jobs INDEXED BY jobs_children WHERE parent_id = :job_id
    UNION ALL
    SELECT c.id, below.level + 1 FROM below CROSS JOIN jobs c INDEXED BY jobs_children ON c.parent_id = below.id
    ORDER BY 2 DESC, 1)
SELECT id FROM below LIMIT 500;

-- name: more
-- What a person sees of a job besides its row.
SELECT exclusive, payload, reason, changed_at, ready_at, accepted_at, cancel_at, parked, timeout_ms, tries
FROM jobs WHERE id = ?;

-- name: result
-- May be large, so that it is read for one job alone.
SELECT result FROM jobs WHERE id = ?;

-- name: attempts
-- The attempts of one job, in order.
SELECT number, claimed_at, started_at, ended_at, outcome, exit_code, signal, error_class, error, resource,
    peak_mb, peak_procs, pid, lease_until, log, output_tail
FROM attempts WHERE job_id = ? ORDER BY number;

-- name: deferrals
-- Why and how often one job was put off.
SELECT reason, count, first_at, last_at FROM deferrals WHERE job_id = ? ORDER BY last_at DESC;

-- name: events
-- The latest moves of one job; more than this only tells the same story again.
SELECT at, from_state AS "from", to_state AS "to", reason FROM (
    SELECT id, at, from_state, to_state, reason FROM events WHERE job_id = ? ORDER BY id DESC LIMIT 500
) ORDER BY id;

-- name: retries
-- Why a job was tried again, and how often for each reason.
SELECT coalesce(reason, 'unknown') AS reason, count(*) AS n FROM events
WHERE job_id = ? AND from_state IN ('starting', 'running', 'waiting') AND to_state IN ('scheduled', 'queued')
GROUP BY 1 ORDER BY 2 DESC, 1;

-- name: tails
-- The last lines of the last attempt of each job asked for.
SELECT a.job_id, a.output_tail, a.log FROM json_each(?) AS wanted CROSS JOIN attempts a ON a.token = (
    SELECT l.token FROM attempts l WHERE l.job_id = wanted.value ORDER BY l.number DESC LIMIT 1);

-- name: deaths
-- When jobs died lately, for the count by kind and day; the newest ten thousand at most.
SELECT kind, ended_at FROM jobs INDEXED BY jobs_ended
WHERE ended_at IS NOT NULL AND state = 'dead' AND ended_at >= :since AND (:kind IS NULL OR kind = :kind)
ORDER BY ended_at DESC LIMIT 10000;
