-- name: outcomes
-- How the jobs that somebody waits for stand, with what they left behind.
SELECT j.id AS job_id, j.state, j.exit_code, j.last_error AS error, j.error_class, j.result
FROM json_each(?) AS wanted CROSS JOIN jobs j ON j.id = wanted.value;

-- name: document
-- The same as one JSON array, with how the last attempt of each has ended; SQLite writes JSON that it has at hand.
SELECT json_group_array(json_object(
    'job_id', j.id, 'kind', j.kind, 'state', j.state, 'outcome',
    (SELECT a.outcome FROM attempts a WHERE a.job_id = j.id ORDER BY a.number DESC LIMIT 1),
    'exit_code', j.exit_code, 'error', j.last_error, 'error_class', j.error_class, 'result', json(j.result))
    ORDER BY wanted.key)
FROM json_each(?) AS wanted CROSS JOIN jobs j ON j.id = wanted.value;
