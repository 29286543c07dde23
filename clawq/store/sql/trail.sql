-- Every move and every refusal, in the order in which they were committed.

-- name: moves
-- What came after an event, in order.
SELECT e.id, e.at, e.job_id, j.kind, j.tenant, e.from_state AS "from", e.to_state AS "to", e.reason
FROM events e CROSS JOIN jobs j ON j.id = e.job_id
WHERE e.id > :after AND e.id <= :to ORDER BY e.id LIMIT :most;

-- name: refusals
-- The same of refusals; `count` is how many of a batch were refused alike.
SELECT id, at, kind, tenant, reason, count FROM turned_away WHERE id > :after AND id <= :to ORDER BY id LIMIT :most;

-- name: last_move
-- Up to where it has come.
SELECT coalesce(max(id), 0) FROM events;

-- name: last_refusal
-- The same of refusals.
SELECT coalesce(max(id), 0) FROM turned_away;

-- name: first_move
-- Where the search for a moment begins: jobs that were pruned took their events with them.
SELECT coalesce(min(id), 0) FROM events;

-- name: first_refusal
-- The same of refusals.
SELECT coalesce(min(id), 0) FROM turned_away;

-- name: move_from
-- The first one at or after a number.
SELECT id, at FROM events WHERE id >= :id ORDER BY id LIMIT 1;

-- name: refusal_from
-- The same of refusals.
SELECT id, at FROM turned_away WHERE id >= :id ORDER BY id LIMIT 1;

-- name: move_back
-- After which event the last so many come.
SELECT coalesce(min(id) - 1, 0) FROM (SELECT id FROM events ORDER BY id DESC LIMIT :most);

-- name: refusal_back
-- The same of refusals.
SELECT coalesce(min(id) - 1, 0) FROM (SELECT id FROM turned_away ORDER BY id DESC LIMIT :most);

-- name: life
-- Another one after a restore, with the last event that was there then: numbers begin anew.
SELECT value, (SELECT value FROM meta WHERE key = 'restored_to') FROM meta WHERE key = 'life';
