-- name: load
-- What is in force, and what is wrong with the file if it does not compile.
SELECT identity, body, broken_identity, error FROM config WHERE id = 1;

-- name: identity
-- Whether the form in force is still the one that somebody holds.
SELECT identity FROM config WHERE id = 1;

-- name: save
-- A file that compiles replaces the form in force and whatever was wrong before.
UPDATE config SET identity = ?, body = ?, broken_identity = NULL, error = NULL, changed_at = ? WHERE id = 1;

-- name: save_broken
-- A broken file leaves the form in force alone.
UPDATE config SET broken_identity = ?, error = ?, changed_at = ? WHERE id = 1;
