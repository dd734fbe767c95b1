-- Hosts whose CPU packages or memory have an energy counter that was read; one row a host.
--
--   host   name of the host; empty when not known
SELECT DISTINCT coalesce(host, '') AS host
FROM metrics JOIN resources USING (resource_id)
WHERE metric = 'hw.energy' AND (metrics.attributes ->> '$."hw.type"') IN ('cpu', 'memory')
