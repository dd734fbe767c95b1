-- Ranks that completed steps in an attempt, and their devices; one row a rank.
--
--   parameters: attempt, first step
--
--   rank          global rank
--   hw_id         UUID of the device that its steps ran on, of a MIG instance that of its GPU; null without one
--   shift_ns      what brings its times onto the clock that all processes of its boot share, in ns
--   is_instance   whether the device is a part of a GPU
--   host          name of its host; empty when not known
WITH boots AS (
    SELECT clock_boot_id, arg_min(clock_anchor_unix_ns - clock_anchor_monotonic_ns, resource_id) AS offset_ns
    FROM resources
    WHERE clock_boot_id IS NOT NULL
    GROUP BY clock_boot_id
),
instances AS (
    SELECT hw_id, any_value(attributes ->> '$.kind') AS whole_id
    FROM metrics
    WHERE metric = 'stepmeter.energy.instance'
    GROUP BY hw_id
),
ranks AS (
    SELECT rank, any_value(hw_id) AS hw_id, any_value(resource_id) AS resource_id, any_value(host) AS host
    FROM steps
    WHERE attempt = $1 AND step >= $2
    GROUP BY rank
)
SELECT
    ranks.rank AS rank,
    coalesce(whole_id, ranks.hw_id) AS hw_id,
    coalesce(offset_ns - (clock_anchor_unix_ns - clock_anchor_monotonic_ns), 0) AS shift_ns,
    coalesce(starts_with(ranks.hw_id, 'MIG-'), false) AS is_instance,
    coalesce(ranks.host, resources.host, '') AS host
FROM ranks
    LEFT JOIN instances ON instances.hw_id = ranks.hw_id
    LEFT JOIN resources USING (resource_id)
    LEFT JOIN boots USING (clock_boot_id)
ORDER BY ranks.rank
