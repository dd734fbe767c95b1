CREATE VIEW step_energy AS
WITH boots AS (
    SELECT clock_boot_id, arg_min(clock_anchor_unix_ns - clock_anchor_monotonic_ns, resource_id) AS offset_ns
    FROM resources
    WHERE clock_boot_id IS NOT NULL
    GROUP BY clock_boot_id
),
clocks AS (
    SELECT resource_id, coalesce(offset_ns - (clock_anchor_unix_ns - clock_anchor_monotonic_ns), 0) AS shift_ns
    FROM resources LEFT JOIN boots USING (clock_boot_id)
),
instances AS (
    SELECT hw_id, any_value(attributes ->> '$.kind') AS whole_id
    FROM raw.metric_points
    WHERE metric = 'stepmeter.energy.instance'
    GROUP BY hw_id
),
readings AS (
    SELECT DISTINCT hw_id, t_lo_ns + coalesce(shift_ns, 0) AS t_lo_ns, t_hi_ns + coalesce(shift_ns, 0) AS t_hi_ns, energy_mj
    FROM raw.gpu_samples LEFT JOIN clocks USING (resource_id)
    WHERE energy_mj IS NOT NULL AND coalesce(hw_type, 'gpu') = 'gpu'
),
-- where nobody says when the counter moved, it moved since the reading before
moved AS (
    SELECT
        hw_id,
        coalesce(t_lo_ns, lag(t_hi_ns) OVER device) AS t_lo_ns,
        t_hi_ns,
        energy_mj,
        energy_mj < lag(energy_mj) OVER device AS is_reset
    FROM readings
    WINDOW device AS (PARTITION BY hw_id ORDER BY t_hi_ns, energy_mj)
    QUALIFY energy_mj IS DISTINCT FROM lag(energy_mj) OVER device
),
counted AS (
    SELECT *, count(*) FILTER (is_reset) OVER (PARTITION BY hw_id ORDER BY t_hi_ns ROWS UNBOUNDED PRECEDING) AS resets
    FROM moved
    WHERE t_lo_ns IS NOT NULL
),
ticks AS (
    SELECT
        hw_id, resets, t_lo_ns, t_hi_ns, (t_lo_ns + t_hi_ns) // 2 AS at_ns, energy_mj,
        lag(energy_mj) OVER counting AS before_mj,
        lead((t_lo_ns + t_hi_ns) // 2) OVER counting AS next_ns,
        lead(t_lo_ns) OVER counting AS next_lo_ns,
        lead(energy_mj) OVER counting AS next_mj,
        lead(energy_mj, 2) OVER counting AS after_mj
    FROM counted
    WINDOW counting AS (PARTITION BY hw_id, resets ORDER BY t_hi_ns)
),
windows AS (
    SELECT
        steps.*,
        coalesce(whole_id, steps.hw_id) AS device_id,
        start_ns + coalesce(shift_ns, 0) AS from_ns,
        end_ns + coalesce(shift_ns, 0) AS until_ns
    FROM steps
        LEFT JOIN clocks USING (resource_id)
        LEFT JOIN instances ON instances.hw_id = steps.hw_id
    WHERE steps.hw_id IS NOT NULL
),
edges AS (
    SELECT
        windows.*,
        s.energy_mj + (s.next_mj - s.energy_mj) * ((from_ns - s.at_ns) / (s.next_ns - s.at_ns)) AS from_mj,
        e.energy_mj + (e.next_mj - e.energy_mj) * ((until_ns - e.at_ns) / (e.next_ns - e.at_ns)) AS until_mj,
        CASE WHEN s.t_hi_ns <= from_ns THEN s.energy_mj ELSE s.before_mj END AS least_from_mj,
        CASE
            WHEN s.t_lo_ns >= from_ns THEN s.energy_mj
            WHEN s.next_lo_ns >= from_ns THEN s.next_mj
            ELSE s.after_mj
        END AS most_from_mj,
        CASE WHEN e.t_hi_ns <= until_ns THEN e.energy_mj ELSE e.before_mj END AS least_until_mj,
        CASE
            WHEN e.t_lo_ns >= until_ns THEN e.energy_mj
            WHEN e.next_lo_ns >= until_ns THEN e.next_mj
            ELSE e.after_mj
        END AS most_until_mj,
        s.next_mj IS NOT NULL AND e.next_mj IS NOT NULL AND s.resets = e.resets AS is_known
    FROM windows
        ASOF LEFT JOIN ticks AS s ON s.hw_id = windows.device_id AND s.at_ns <= windows.from_ns
        ASOF LEFT JOIN ticks AS e ON e.hw_id = windows.device_id AND e.at_ns <= windows.until_ns
)
SELECT
    run_id, attempt, rank, step, device_id AS hw_id, start_ns, end_ns, end_ns - start_ns AS duration_ns,
    CASE WHEN is_known THEN round(until_mj) - round(from_mj) END::BIGINT AS energy_mj,
    CASE WHEN is_known THEN greatest(least_until_mj - most_from_mj - 1, 0) END::BIGINT AS lower_mj,
    CASE WHEN is_known THEN most_until_mj - least_from_mj + 1 END::BIGINT AS upper_mj,
    CASE WHEN is_known THEN (until_mj - from_mj) / 1000 END AS energy_joules,
    CASE WHEN is_known AND end_ns > start_ns THEN (until_mj - from_mj) * 1e6 / (end_ns - start_ns) END AS power_watts,
    samples, tokens, warmup
FROM edges;

COMMENT ON VIEW step_energy IS
    'energy of the GPU during a step by its counter, each tick shared evenly; `stepmeter energy` also knows what phases draw, has narrower bounds and divides a shared GPU among its ranks';
COMMENT ON COLUMN step_energy.step IS 'number of the step';
COMMENT ON COLUMN step_energy.hw_id IS 'UUID of the GPU, of a MIG instance that of its whole GPU';
COMMENT ON COLUMN step_energy.duration_ns IS 'from start to end of the step, in ns';
COMMENT ON COLUMN step_energy.energy_mj IS 'energy of the GPU during the step, in mJ; null where the counter does not cover it';
COMMENT ON COLUMN step_energy.lower_mj IS 'it is not less, in mJ: between the ticks that were surely inside';
COMMENT ON COLUMN step_energy.upper_mj IS 'it is not more, in mJ: between the ticks that were surely outside; null at the end of the readings';
COMMENT ON COLUMN step_energy.energy_joules IS 'energy_mj in J, not rounded';
COMMENT ON COLUMN step_energy.power_watts IS 'mean power of the GPU during the step, in W';
