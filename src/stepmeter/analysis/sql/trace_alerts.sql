-- Alerts that fired.
--
--   parameters: $1 ranks (list) or null, $2 first moment in ns, $3 last moment in ns
--
--   rank          global rank; 0 when not known
--   time_ns       when, Unix time in ns
--   level         level of the alert
--   message       what it says
--   step          step of its row; null when not known
SELECT coalesce(rank, 0) AS rank, time_ns, level, message, step
FROM alerts
WHERE
    ($1::BIGINT[] IS NULL OR list_contains($1::BIGINT[], coalesce(rank, 0)))
    AND time_ns BETWEEN $2::BIGINT AND $3::BIGINT
ORDER BY time_ns
