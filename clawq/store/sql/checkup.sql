-- What `clawq doctor` asks of the database besides what `status` does.

-- name: newest
-- The latest moments written down: a row of each, from the end of its key.
SELECT max(
    coalesce((SELECT created_at FROM jobs WHERE id = (SELECT max(id) FROM jobs)), 0),
    coalesce((SELECT at FROM events WHERE id = (SELECT max(id) FROM events)), 0),
    coalesce((SELECT claimed_at FROM attempts WHERE token = (SELECT max(token) FROM attempts)), 0));

-- name: live_tokens
-- Attempts under way.
SELECT token FROM attempts INDEXED BY attempts_live WHERE ended_at IS NULL;

-- name: footprints
-- How many processes a kind grows to; a row a kind.
SELECT kind, procs FROM footprints;

-- name: path
-- Where the supervisor that last ran would look for programs.
SELECT value FROM meta WHERE key = 'supervisor_path';
