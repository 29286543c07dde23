-- name: outcomes
-- How the jobs that somebody waits for stand, with what they left behind.
SELECT j.id AS job_id, j.state, j.exit_code, j.last_error AS error, j.error_class, j.result
FROM json_each(?) AS wanted CROSS JOIN jobs j ON j.id = wanted.value;
