-- Memory of each GPU, as its process or its readings told; one row a device.
--
--   hw_id                UUID of the GPU
--   memory_limit_bytes   its memory, in bytes
WITH told AS (
    SELECT hw_id, CAST(attributes ->> '$."stepmeter.gpu.memory.limit"' AS DOUBLE) AS limit_bytes FROM resources
    UNION ALL
    SELECT hw_id, "value" FROM metrics WHERE metric = 'hw.gpu.memory.limit'
)
SELECT hw_id, max(limit_bytes) AS memory_limit_bytes
FROM told
WHERE hw_id IS NOT NULL AND limit_bytes IS NOT NULL
GROUP BY hw_id
ORDER BY hw_id
