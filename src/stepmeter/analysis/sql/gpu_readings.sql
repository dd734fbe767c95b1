-- Readings of GPUs; one row a device.
--
--   parameters: attempt, first time in ns, last time in ns
--
--   hw_id                UUID of the GPU
--   host                 name of its host
--   samples              number of data points
--   first_ns             time of the first point, Unix time in ns
--   last_ns              time of the last point, Unix time in ns
--   utilization_share    mean utilization, 0 to 1; null when not measured
--   memory_bytes         mean memory in use, in bytes; null when not measured
--   memory_peak_bytes    greatest memory in use, in bytes; null when not measured
--   memory_limit_bytes   memory of the device, in bytes; null when not known
--   temperature_peak_c   greatest temperature, in degrees Celsius; null when not measured
--   power_w              mean power, in W, of the moment where the board tells that; null when not measured
--   power_limit_w        enforced power limit, in W; null when not known
SELECT
    metrics.hw_id AS hw_id,
    any_value(resources.host) AS host,
    count(*) AS samples,
    min(time_ns) AS first_ns,
    max(time_ns) AS last_ns,
    avg("value") FILTER (metric = 'hw.gpu.utilization') AS utilization_share,
    avg("value") FILTER (metric = 'hw.gpu.memory.usage') AS memory_bytes,
    max("value") FILTER (metric = 'hw.gpu.memory.usage') AS memory_peak_bytes,
    coalesce(
        max("value") FILTER (metric = 'hw.gpu.memory.limit'),
        max(CAST(resources.attributes ->> '$."stepmeter.gpu.memory.limit"' AS DOUBLE))
            FILTER (resources.hw_id = metrics.hw_id)
    ) AS memory_limit_bytes,
    max("value") FILTER (metric = 'hw.temperature') AS temperature_peak_c,
    coalesce(
        avg("value") FILTER (metric = 'hw.power' AND (metrics.attributes ->> '$.kind') = 'instant'),
        avg("value") FILTER (metric = 'hw.power' AND (metrics.attributes ->> '$.kind') IS NULL),
        avg("value") FILTER (metric = 'hw.power')
    ) AS power_w,
    max(CAST(resources.attributes ->> '$."stepmeter.gpu.power.limit"' AS DOUBLE))
        FILTER (resources.hw_id = metrics.hw_id) AS power_limit_w
FROM metrics JOIN resources USING (resource_id)
WHERE metric IN ('hw.gpu.utilization', 'hw.gpu.memory.usage', 'hw.gpu.memory.limit', 'hw.temperature', 'hw.power')
    AND metrics.hw_id IS NOT NULL
    AND coalesce(metrics.attributes ->> '$."hw.type"', 'gpu') = 'gpu'
    AND coalesce(resources.attempt, ?) = ? AND time_ns BETWEEN ? AND ?
GROUP BY metrics.hw_id
ORDER BY metrics.hw_id
