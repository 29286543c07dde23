-- How far each of [[schedules]] has come. The rows live in `meta`, since there are a handful of them.

-- name: marks
-- The last slot of each that was dealt with.
SELECT substr(key, 10), value FROM meta WHERE key >= 'schedule ' AND key < 'schedule!';

-- name: mark
-- All slots up to then are dealt with.
INSERT INTO meta (key, value) VALUES ('schedule ' || :name, :at)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: forget
-- It has left the configuration; should it come back, it begins anew.
DELETE FROM meta WHERE key = 'schedule ' || :name;
