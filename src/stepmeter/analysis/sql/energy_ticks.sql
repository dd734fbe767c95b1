-- Readings of energy counters of GPUs, CPU packages and memory in the order of time; one row a reading.
--
--   parameters: attempt, or null for all; first and last time in ns
--
--   hw_id       UUID of the device
--   time_ns     when the counter was read, Unix time in ns, on one clock for all processes of a boot
--   energy_mj   what it held, in mJ
--   gap_ns      it moved at most so long before, in ns; null where the sender does not say
--   hw_type     gpu, cpu or memory
--   host        name of the host of who read it; empty when not known
WITH boots AS (
    SELECT clock_boot_id, arg_min(clock_anchor_unix_ns - clock_anchor_monotonic_ns, resource_id) AS offset_ns
    FROM resources
    WHERE clock_boot_id IS NOT NULL
    GROUP BY clock_boot_id
),
clocks AS (
    SELECT
        resource_id,
        attempt,
        coalesce(host, '') AS host,
        coalesce(offset_ns - (clock_anchor_unix_ns - clock_anchor_monotonic_ns), 0) AS shift_ns
    FROM resources LEFT JOIN boots USING (clock_boot_id)
),
gaps AS (
    SELECT resource_id, hw_id, time_ns, any_value("value") AS gap_s
    FROM metrics
    WHERE metric = 'stepmeter.energy.tick_gap' AND time_ns BETWEEN $2 AND $3
    GROUP BY ALL
),
readings AS (
    SELECT
        points.hw_id,
        points.resource_id,
        host,
        coalesce(points.attributes ->> '$."hw.type"', 'gpu') AS hw_type,
        points.time_ns + shift_ns AS time_ns,
        CAST(round("value" * 1000) AS BIGINT) AS energy_mj,
        CAST(round(gap_s * 1e9) AS BIGINT) AS gap_ns,
        count(gap_s) OVER (PARTITION BY points.hw_id) > 0 AS is_known,
        count(*) OVER (PARTITION BY points.hw_id, points.resource_id) AS density
    FROM metrics AS points
    JOIN clocks USING (resource_id)
    LEFT JOIN gaps
        ON gaps.resource_id = points.resource_id AND gaps.hw_id = points.hw_id AND gaps.time_ns = points.time_ns
    WHERE metric = 'hw.energy' AND points.hw_id IS NOT NULL
        AND coalesce(points.attributes ->> '$."hw.type"', 'gpu') IN ('gpu', 'cpu', 'memory')
        AND coalesce(attempt, $1) IS NOT DISTINCT FROM coalesce($1, attempt)
        AND points.time_ns BETWEEN $2 AND $3
),
-- who says when the counter moved is believed before who just read it; of those the one who read it most
chosen AS (
    SELECT hw_id, CASE WHEN any_value(is_known) THEN NULL ELSE arg_max(resource_id, density) END AS only_one
    FROM readings
    GROUP BY hw_id
)
SELECT hw_id, time_ns, any_value(energy_mj) AS energy_mj, any_value(gap_ns) AS gap_ns, any_value(hw_type) AS hw_type, any_value(host) AS host
FROM readings JOIN chosen USING (hw_id)
WHERE CASE WHEN is_known THEN gap_ns IS NOT NULL ELSE resource_id = only_one END
GROUP BY hw_id, time_ns
ORDER BY hw_id, time_ns
