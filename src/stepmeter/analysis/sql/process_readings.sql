-- Readings of training processes; one row a rank.
--
--   parameters: attempt, first time in ns, last time in ns
--
--   rank                 global rank
--   host                 name of its host
--   samples              number of data points
--   first_ns             time of the first point, Unix time in ns
--   last_ns              time of the last point, Unix time in ns
--   cpu_cores            mean number of CPUs that the process kept busy; null when not measured
--   rss_bytes            mean resident memory, in bytes; null when not measured
--   rss_peak_bytes       greatest resident memory, in bytes; null when not measured
WITH points AS (
    SELECT metrics.*, coalesce(metrics.rank, resources.rank) AS of_rank, resources.host
    FROM metrics JOIN resources USING (resource_id)
    WHERE metric IN ('process.cpu.time', 'process.memory.usage')
        AND coalesce(resources.attempt, ?) = ? AND time_ns BETWEEN ? AND ?
),
busy AS ( -- a counter of each process and mode: its growth, or the sum of its deltas, over the time it was read
    SELECT
        of_rank, resource_id,
        CASE any_value(temporality) WHEN 'delta' THEN sum("value") ELSE max("value") - min("value") END AS cpu_s,
        (max(time_ns) - min(time_ns)) / 1e9 AS elapsed_s
    FROM points
    WHERE metric = 'process.cpu.time'
    GROUP BY of_rank, resource_id, attributes
),
cores AS (
    SELECT of_rank, sum(cpu_s) / max(elapsed_s) AS cpu_cores
    FROM busy
    WHERE elapsed_s > 0
    GROUP BY of_rank
)
SELECT
    points.of_rank AS rank,
    any_value(host) AS host,
    count(*) AS samples,
    min(time_ns) AS first_ns,
    max(time_ns) AS last_ns,
    any_value(cores.cpu_cores) AS cpu_cores,
    avg("value") FILTER (metric = 'process.memory.usage') AS rss_bytes,
    max("value") FILTER (metric = 'process.memory.usage') AS rss_peak_bytes
FROM points LEFT JOIN cores ON cores.of_rank = points.of_rank
WHERE points.of_rank IS NOT NULL
GROUP BY points.of_rank
ORDER BY points.of_rank
