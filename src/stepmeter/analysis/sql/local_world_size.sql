-- How many ranks share a node, as the processes of an attempt told; one row.
--
--   parameters: attempt
--
--   local_world_size   ranks on the fullest node; null when no process told
SELECT max(CAST(attributes ->> '$."stepmeter.local_world_size"' AS BIGINT)) AS local_world_size
FROM resources
WHERE attempt = ?
