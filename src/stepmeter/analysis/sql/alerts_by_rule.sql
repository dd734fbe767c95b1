-- Alerts that fired, a row a rule and level, the gravest first; ends of alerts are none.
--
--   level       level of the alert, in small letters
--   message     what the latest of them said
--   times       how often it fired
--   first_step  step of the first; null when not known
--   last_step   step of the last; null when not known
WITH fired AS (
    SELECT
        lower(level) AS level, coalesce(message, '') AS message, time_ns, step,
        coalesce(attributes ->> '$."stepmeter.alert.name"', rule) AS name
    FROM alerts
)
SELECT
    level, max_by(message, time_ns) AS message, count(*) AS times,
    min_by(step, time_ns) AS first_step, max_by(step, time_ns) AS last_step
FROM fired
WHERE NOT starts_with(message, '[recovered] ')
GROUP BY level, name
ORDER BY list_position(['critical', 'error', 'warning', 'info', 'debug'], level), min(time_ns)
