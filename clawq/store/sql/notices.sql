-- What people were told by `notify`, and what they are still to be told.

-- name: seen
-- Up to where each state was looked at.
SELECT state, at, id FROM notices_seen;

-- name: see
-- Everything up to there is told, or counted as pending, in the same transaction.
INSERT INTO notices_seen VALUES (:state, :at, :id) ON CONFLICT DO UPDATE SET at = excluded.at, id = excluded.id;

-- name: forget_seen
-- Nobody is told of anything: whoever is later does not want the past.
DELETE FROM notices_seen;

-- name: forget_pending
-- Nor what was pending then.
DELETE FROM notices;

-- name: ended
-- Jobs that came to this end since then, in order: a range of an index, and nearly always an empty one.
SELECT id, kind, band, tenant, ended_at AS at FROM jobs INDEXED BY jobs_ended
WHERE ended_at IS NOT NULL AND state = :state AND ended_at >= :at AND (ended_at, id) > (:at, :id)
ORDER BY ended_at, id LIMIT :most;

-- name: unknown
-- Jobs that became unknown since then; there are few, for each waits for a person.
SELECT id, kind, band, tenant, changed_at AS at FROM jobs INDEXED BY jobs_aside
WHERE token IS NULL AND ended_at IS NULL AND state <> 'queued' AND state = 'unknown' AND (changed_at, id) > (:at, :id)
ORDER BY changed_at, id LIMIT :most;

-- name: count
-- One more of its kind and state to be told of.
INSERT INTO notices (word, about, pending, job_id) VALUES (:word, :about, 1, :job_id)
ON CONFLICT DO UPDATE SET pending = pending + 1, job_id = excluded.job_id;

-- name: all
-- A row for each kind and state, and for each alert that lasts.
SELECT word, about, pending, job_id, told_at FROM notices;

-- name: told
-- Before the command is started: a notice is given once at most.
INSERT INTO notices (word, about, told_at) VALUES (:word, :about, :now)
ON CONFLICT DO UPDATE SET pending = 0, told_at = excluded.told_at;

-- name: over
-- An alert that does not last is told again when it comes back.
DELETE FROM notices WHERE word = :word AND about = :about;

-- name: job
-- What a notice says of a job.
SELECT id, kind, band, tenant, last_error FROM jobs WHERE id = ?;
