-- Curves beside the spans: power and memory of devices, memory of processes, peaks of steps.
--
--   parameters: $1 ranks (list) or null, $2 first moment in ns, $3 last moment in ns
--
--   rank          global rank; 0 when not known
--   hw_id         device; null for a process
--   counter       what is counted
--   unit          its unit
--   time_ns       when, Unix time in ns
--   value         the value in that unit
WITH readings AS (
    SELECT coalesce(rank, 0) AS rank, hw_id, 'power' AS counter, 'W' AS unit, time_ns, power_watts AS value FROM gpu_power
    UNION ALL
    SELECT DISTINCT
        coalesce(rank, 0), CASE metric WHEN 'hw.gpu.memory.usage' THEN hw_id END,
        CASE metric WHEN 'hw.gpu.memory.usage' THEN 'memory' ELSE 'resident memory' END, 'MiB',
        time_ns, value / 1048576
    FROM metrics
    WHERE metric IN ('hw.gpu.memory.usage', 'process.memory.usage')
    UNION ALL
    SELECT rank, NULL, 'step peak allocated', 'MiB', end_ns, peak_allocated_bytes / 1048576
    FROM steps
    WHERE peak_allocated_bytes IS NOT NULL
)
SELECT rank, hw_id, counter, unit, time_ns, value
FROM readings
WHERE
    value IS NOT NULL AND isfinite(value)
    AND ($1::BIGINT[] IS NULL OR list_contains($1::BIGINT[], rank))
    AND time_ns BETWEEN $2::BIGINT AND $3::BIGINT
ORDER BY time_ns
