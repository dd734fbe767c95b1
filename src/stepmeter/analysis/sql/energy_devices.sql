-- What else is known of devices; one row a device.
--
--   parameters: first and last time in ns
--
--   hw_id             UUID of the device
--   limit_w           enforced power limit, in W; null when not known
--   other_processes   most processes of others that were seen on it; null when nobody looked
--   throttled_share   share of readings at which power or heat held its clocks down; null when nobody looked
--   faults            queries that failed, by reason, as a JSON object
--   name              product name; null when not known
WITH limits AS (
    SELECT hw_id, max(CAST(attributes ->> '$."stepmeter.gpu.power.limit"' AS DOUBLE)) AS limit_w,
        any_value(attributes ->> '$."hw.name"') AS name
    FROM resources
    WHERE hw_id IS NOT NULL
    GROUP BY hw_id
),
points AS (
    SELECT
        hw_id,
        max("value") FILTER (metric = 'stepmeter.energy.power_limit') AS limit_w,
        max("value") FILTER (metric = 'stepmeter.energy.other_processes') AS other_processes,
        avg("value") FILTER (metric = 'stepmeter.energy.throttled') AS throttled_share
    FROM metrics
    WHERE metric IN
        ('stepmeter.energy.power_limit', 'stepmeter.energy.other_processes', 'stepmeter.energy.throttled')
        AND hw_id IS NOT NULL
        AND time_ns BETWEEN $1 - 120000000000 AND $2  -- the limit is told once a minute
    GROUP BY hw_id
),
faults AS (
    SELECT hw_id, coalesce(attributes ->> '$.kind', 'unknown') AS reason, CAST(max("value") AS BIGINT) AS count
    FROM metrics
    WHERE metric = 'hw.errors' AND hw_id IS NOT NULL AND time_ns <= $2
    GROUP BY ALL
),
reasons AS (
    SELECT hw_id, CAST(json_group_object(reason, count) AS VARCHAR) AS faults
    FROM faults
    GROUP BY hw_id
)
SELECT hw_id, coalesce(points.limit_w, limits.limit_w) AS limit_w, other_processes, throttled_share, faults, name
FROM limits FULL JOIN points USING (hw_id) FULL JOIN reasons USING (hw_id)
ORDER BY hw_id
