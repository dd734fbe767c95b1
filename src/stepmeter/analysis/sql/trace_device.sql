-- When the device worked on each step.
--
--   parameters: $1 ranks (list) or null, $2 first moment in ns, $3 last moment in ns
--
--   rank          global rank
--   step          number of the step
--   start_ns      start of the step's device work, Unix time in ns
--   end_ns        its end, Unix time in ns
SELECT rank, step, device_start_ns AS start_ns, device_end_ns AS end_ns
FROM steps
WHERE
    device_start_ns IS NOT NULL AND device_end_ns >= device_start_ns
    AND ($1::BIGINT[] IS NULL OR list_contains($1::BIGINT[], rank))
    AND device_end_ns >= $2::BIGINT AND device_start_ns <= $3::BIGINT
ORDER BY device_start_ns, device_end_ns DESC
