CREATE VIEW gpu_power AS
SELECT
    run_id, hw_id, host, rank, t_hi_ns AS time_ns, power_mw, power_mw / 1000 AS power_watts, utilization,
    memory_used_bytes, temperature_celsius, resource_id
FROM raw.gpu_samples
WHERE power_mw IS NOT NULL;

COMMENT ON VIEW gpu_power IS 'a power sample of a device';
COMMENT ON COLUMN gpu_power.time_ns IS 'when it was read, Unix time in ns';
COMMENT ON COLUMN gpu_power.power_watts IS 'power of the device in W';
