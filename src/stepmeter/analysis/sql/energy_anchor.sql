-- The anchor of the run's clock, from who sent the devices' samples; one row.
--
--   anchor_ns      earliest anchor of ours, Unix time in ns; null without one
--   lacks_anchor   whether a sample of our own came without an anchor
SELECT
    min(clock_anchor_unix_ns) FILTER (scope_name = 'stepmeter') AS anchor_ns,
    coalesce(bool_or(clock_anchor_unix_ns IS NULL) FILTER (scope_name = 'stepmeter'), false) AS lacks_anchor
FROM metrics JOIN resources USING (resource_id)
WHERE metric IN ('hw.power', 'hw.energy') AND metrics.hw_id IS NOT NULL
    AND coalesce(metrics.attributes ->> '$."hw.type"', 'gpu') = 'gpu'
