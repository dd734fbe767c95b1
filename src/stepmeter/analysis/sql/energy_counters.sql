-- Readings of an inference server's counters in the order of time; one row a reading.
--
--   metric    name of the counter
--   series    which engine and model, and who read it
--   time_ns   when it was read, Unix time in ns
--   reading   what it read: tokens, or ns for times
SELECT
    metric,
    coalesce(attributes ->> '$.engine', '') || '/' || coalesce(attributes ->> '$.model', '') || '/' || resource_id
        AS series,
    time_ns,
    any_value(CAST(round(CASE WHEN metric LIKE '%.time' THEN "value" * 1e9 ELSE "value" END) AS BIGINT)) AS reading
FROM metrics
WHERE metric LIKE 'stepmeter.inference.%' AND metric NOT LIKE '%.failures'
GROUP BY ALL
ORDER BY metric, series, time_ns
