-- Power samples of devices in the order of time; one row a sample, of the densest series of each device.
--
--   parameters: attempt, or null for all; first and last time in ns
--
--   hw_id      UUID of the device
--   time_ns    when it was read, Unix time in ns, on one clock for all processes of a boot
--   power_mw   power in mW
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
        coalesce(offset_ns - (clock_anchor_unix_ns - clock_anchor_monotonic_ns), 0) AS shift_ns
    FROM resources LEFT JOIN boots USING (clock_boot_id)
),
samples AS (
    SELECT
        points.hw_id,
        coalesce(points.attributes ->> '$.kind', '') AS kind,
        points.time_ns + shift_ns AS time_ns,
        CAST(round("value" * 1000) AS BIGINT) AS power_mw
    FROM metrics AS points JOIN clocks USING (resource_id)
    WHERE metric = 'hw.power' AND points.hw_id IS NOT NULL AND "value" >= 0
        AND coalesce(points.attributes ->> '$."hw.type"', 'gpu') = 'gpu'
        AND coalesce(attempt, $1) IS NOT DISTINCT FROM coalesce($1, attempt)
        AND points.time_ns BETWEEN $2 AND $3
),
densities AS (
    SELECT hw_id, kind, count(*) AS density
    FROM samples
    GROUP BY ALL
),
densest AS (
    SELECT hw_id, arg_max(kind, (density, kind)) AS kind
    FROM densities
    GROUP BY hw_id
)
SELECT hw_id, time_ns, any_value(power_mw) AS power_mw
FROM samples JOIN densest USING (hw_id, kind)
GROUP BY hw_id, time_ns
ORDER BY hw_id, time_ns
