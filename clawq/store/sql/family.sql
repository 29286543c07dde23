-- Children: what they take over from their parent, and what a later attempt of it gets back.

-- name: parent
-- What a child takes over, and what says whether it is still the same.
SELECT tenant, band, priority, deadline_at, coalesce(root_id, id), depth, token, state FROM jobs WHERE id = ?;

-- name: limits
-- Only children ask.
SELECT body ->> '$.limits.max_depth', body ->> '$.limits.max_descendants' FROM config WHERE id = 1;

-- name: descendants
-- How many one root has below it, from the index alone.
SELECT count(*) FROM jobs INDEXED BY jobs_descendants WHERE root_id = ? AND kind <> 'ask';

-- name: twin
-- The first child of the parent's earlier attempts that is what this one would be, and that this attempt did
-- not get back yet: so the n-th finds the n-th. What has failed is asked for anew.
SELECT id, state, deadline_at FROM jobs INDEXED BY jobs_children
WHERE parent_id = :parent AND twin = :twin AND asked_by <> :asked_by AND state NOT IN ('dead', 'expired', 'cancelled')
    AND coalesce(asked_kind, kind) = :kind AND command IS :command AND payload IS :payload AND kind <> 'ask'
ORDER BY id LIMIT 1;

-- name: get_back
-- Whose child it is: this attempt's from now on.
UPDATE jobs SET asked_by = :asked_by WHERE id = :job_id AND parent_id = :parent;

-- name: held
-- How many jobs wait for a person.
SELECT coalesce(sum(n), 0) FROM tally WHERE state = 'held';
