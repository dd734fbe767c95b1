CREATE VIEW spans AS
SELECT
    run_id, trace_id, span_id, parent_span_id, trace_state, name, kind, service_name, scope_name, scope_version,
    start_ns, end_ns, end_ns - start_ns AS duration_ns, status_code, status_message, rank, step, phase,
    events, links, resource_id, attributes
FROM raw.spans
UNION ALL
SELECT
    run_id, trace_id, span_id, NULL, NULL, 'step', 'Internal', NULL, 'stepmeter', NULL,
    start_ns, end_ns, duration_ns, 'Unset', NULL, rank, step, NULL,
    NULL, NULL, resource_id, attributes
FROM steps;

COMMENT ON VIEW spans IS 'a span of anyone''s, once: keyed by trace and span id; steps are spans named step';
COMMENT ON COLUMN spans.duration_ns IS 'from start to end of the span, in ns';
