-- What the producers reported as lost, summed over processes; one row a kind.
--
--   kind      what was lost and why
--   dropped   how many; the counters are cumulative, so that the largest point of each process counts
WITH latest AS (
    SELECT
        resource_id,
        coalesce(attributes ->> '$.kind', 'unknown') AS kind,
        max("value") AS dropped
    FROM metrics
    WHERE metric = 'stepmeter.dropped'
    GROUP BY ALL
)
SELECT kind, CAST(sum(dropped) AS BIGINT) AS dropped
FROM latest
GROUP BY kind
HAVING sum(dropped) > 0
ORDER BY kind
