CREATE VIEW gpu_power AS
SELECT
    metrics.run_id AS run_id,
    metrics.hw_id AS hw_id,
    any_value(host) AS host,
    any_value(metrics.rank) AS rank,
    time_ns,
    CAST(round(max("value") FILTER (metric = 'hw.power') * 1000) AS BIGINT) AS power_mw,
    CAST(max("value") FILTER (metric = 'hw.power') AS DOUBLE) AS power_watts,
    CAST(max("value") FILTER (metric = 'hw.gpu.utilization') AS DOUBLE) AS utilization,
    CAST(max("value") FILTER (metric = 'hw.gpu.memory.usage') AS BIGINT) AS memory_used_bytes,
    CAST(max("value") FILTER (metric = 'hw.temperature') AS DOUBLE) AS temperature_celsius,
    metrics.resource_id AS resource_id
FROM metrics LEFT JOIN resources USING (resource_id)
WHERE metric IN ('hw.power', 'hw.gpu.utilization', 'hw.gpu.memory.usage', 'hw.temperature')
    AND metrics.hw_id IS NOT NULL
    AND coalesce(metrics.attributes ->> '$."hw.type"', 'gpu') = 'gpu'
    AND coalesce(metrics.attributes ->> '$.kind', '') != 'average'
GROUP BY metrics.run_id, metrics.hw_id, metrics.resource_id, time_ns
HAVING count(*) FILTER (metric = 'hw.power') > 0;

COMMENT ON VIEW gpu_power IS 'a power sample of a device';
COMMENT ON COLUMN gpu_power.time_ns IS 'when it was read, Unix time in ns';
COMMENT ON COLUMN gpu_power.power_watts IS 'power of the device in W';
