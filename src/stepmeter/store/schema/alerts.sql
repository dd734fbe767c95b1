CREATE VIEW alerts AS
SELECT
    run_id, coalesce(time_ns, observed_ns) AS time_ns, severity_text AS level, body AS message,
    attributes ->> '$."stepmeter.alert.rule"' AS rule, rank, step, resource_id, attributes
FROM raw.logs
WHERE event_name = 'stepmeter.alert';

COMMENT ON VIEW alerts IS 'an alert that fired';
COMMENT ON COLUMN alerts.time_ns IS 'when it fired, Unix time in ns';
COMMENT ON COLUMN alerts.level IS 'level of the alert';
COMMENT ON COLUMN alerts.message IS 'what the alert says';
COMMENT ON COLUMN alerts.rule IS 'the rule as it was written; null when not given';
