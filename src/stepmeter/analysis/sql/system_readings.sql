-- Readings of hosts; one row a host.
--
--   parameters: attempt, first time in ns, last time in ns
--
--   host                 name of the host
--   node_rank            rank of the node; null when not known
--   samples              number of data points
--   first_ns             time of the first point, Unix time in ns
--   last_ns              time of the last point, Unix time in ns
--   cpu_share            mean utilization of all CPUs, 0 to 1; null when not measured
--   ram_bytes            mean memory in use, in bytes; null when not measured
--   ram_peak_bytes       greatest memory in use, in bytes; null when not measured
--   ram_limit_bytes      memory of the host, in bytes; null when not measured
--   cpu_cores            logical CPUs of the host; null when not measured
SELECT
    resources.host AS host,
    max(resources.node_rank) AS node_rank,
    count(*) AS samples,
    min(time_ns) AS first_ns,
    max(time_ns) AS last_ns,
    avg("value") FILTER (metric = 'system.cpu.utilization') AS cpu_share,
    avg("value") FILTER (metric = 'system.memory.usage') AS ram_bytes,
    max("value") FILTER (metric = 'system.memory.usage') AS ram_peak_bytes,
    max("value") FILTER (metric = 'system.memory.limit') AS ram_limit_bytes,
    max("value") FILTER (metric = 'system.cpu.logical.count') AS cpu_cores
FROM metrics JOIN resources USING (resource_id)
WHERE metric IN ('system.cpu.utilization', 'system.memory.usage', 'system.memory.limit', 'system.cpu.logical.count')
    AND coalesce(resources.attempt, ?) = ? AND time_ns BETWEEN ? AND ?
GROUP BY resources.host
ORDER BY min(coalesce(resources.node_rank, 0)), resources.host
