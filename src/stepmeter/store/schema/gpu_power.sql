CREATE VIEW gpu_power AS
WITH kinds AS (
    -- one series of each device: power of the moment where the board has it, else as NVML documents it
    SELECT run_id, hw_id, min(coalesce(power_kind, 'window')) AS best
    FROM raw.gpu_samples
    WHERE power_mw IS NOT NULL AND power_kind IS DISTINCT FROM 'average'
    GROUP BY run_id, hw_id
),
powers AS (
    SELECT samples.*
    FROM raw.gpu_samples AS samples JOIN kinds
        ON kinds.run_id = samples.run_id AND kinds.hw_id = samples.hw_id
            AND kinds.best = coalesce(samples.power_kind, 'window')
    WHERE samples.power_mw IS NOT NULL AND coalesce(samples.hw_type, 'gpu') = 'gpu'
),
-- all else is read once a second
others AS (
    SELECT run_id, hw_id, t_hi_ns, utilization, memory_used_bytes, temperature_celsius
    FROM raw.gpu_samples
    WHERE coalesce(utilization, memory_used_bytes, temperature_celsius) IS NOT NULL
)
SELECT
    powers.run_id AS run_id,
    powers.hw_id AS hw_id,
    powers.host AS host,
    powers.rank AS rank,
    powers.t_hi_ns AS time_ns,
    powers.power_mw AS power_mw,
    powers.power_mw / 1000 AS power_watts,
    CASE WHEN powers.t_hi_ns - others.t_hi_ns < 2500000000 THEN others.utilization END AS utilization,
    CASE WHEN powers.t_hi_ns - others.t_hi_ns < 2500000000 THEN others.memory_used_bytes END AS memory_used_bytes,
    CASE WHEN powers.t_hi_ns - others.t_hi_ns < 2500000000 THEN others.temperature_celsius END AS temperature_celsius,
    powers.resource_id AS resource_id,
    powers.power_kind AS power_kind
FROM powers ASOF LEFT JOIN others
    ON others.run_id = powers.run_id AND others.hw_id = powers.hw_id AND others.t_hi_ns <= powers.t_hi_ns;

COMMENT ON VIEW gpu_power IS
    'a power sample of a device, all of one kind, of the moment where the board has that; beside it what else was read last, up to 2.5 s before';
COMMENT ON COLUMN gpu_power.time_ns IS 'when it was read, Unix time in ns';
COMMENT ON COLUMN gpu_power.power_watts IS 'power of the device in W';
