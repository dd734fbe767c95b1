CREATE VIEW gpu_power AS
WITH kinds AS (
    -- one series of each device: power of the moment where the board has it, else as NVML documents it
    SELECT run_id, hw_id, min(coalesce(power_kind, 'window')) AS best
    FROM raw.gpu_samples
    WHERE power_mw IS NOT NULL AND power_kind IS DISTINCT FROM 'average'
    GROUP BY run_id, hw_id
)
SELECT
    samples.run_id AS run_id,
    samples.hw_id AS hw_id,
    samples.host AS host,
    samples.rank AS rank,
    samples.t_hi_ns AS time_ns,
    samples.power_mw AS power_mw,
    samples.power_mw / 1000 AS power_watts,
    samples.utilization AS utilization,
    samples.memory_used_bytes AS memory_used_bytes,
    samples.temperature_celsius AS temperature_celsius,
    samples.resource_id AS resource_id,
    samples.power_kind AS power_kind
FROM raw.gpu_samples AS samples JOIN kinds
    ON kinds.run_id = samples.run_id AND kinds.hw_id = samples.hw_id
        AND kinds.best = coalesce(samples.power_kind, 'window')
WHERE samples.power_mw IS NOT NULL AND coalesce(samples.hw_type, 'gpu') = 'gpu';

COMMENT ON VIEW gpu_power IS 'a power sample of a device, all of one kind: of the moment where the board has that';
COMMENT ON COLUMN gpu_power.time_ns IS 'when it was read, Unix time in ns';
COMMENT ON COLUMN gpu_power.power_watts IS 'power of the device in W';
