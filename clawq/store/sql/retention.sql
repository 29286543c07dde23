-- What is kept of what has ended.

-- name: oldest
-- Of one kind of end, in the order of their ends, from behind a mark on.
SELECT ended_at, id FROM jobs INDEXED BY jobs_ended
WHERE ended_at IS NOT NULL AND state = :state AND (ended_at, id) > (:ended_at, :id)
ORDER BY ended_at, id LIMIT :most;

-- name: mark
-- Up to which end logs were deleted to make room.
SELECT value FROM meta WHERE key = 'logs deleted to';

-- name: set_mark
-- The next time begins behind it.
INSERT INTO meta (key, value) VALUES ('logs deleted to', :mark)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: ended_before
-- For --dry-run: whose logs would have gone with their jobs. By primary keys.
SELECT j.id FROM json_each(:ids) AS asked CROSS JOIN jobs j ON j.id = asked.value
WHERE j.ended_at < :before AND NOT EXISTS (SELECT 1 FROM jobs p WHERE p.id = j.parent_id AND p.ended_at IS NULL);
