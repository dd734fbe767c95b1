CREATE VIEW logs AS
SELECT
    run_id, time_ns, observed_ns, severity_number, severity_text, event_name, body, trace_id, span_id,
    service_name, scope_name, scope_version, rank, step, resource_id, attributes
FROM raw.logs;

COMMENT ON VIEW logs IS 'a log record of anyone''s';
