CREATE VIEW otel_logs AS
SELECT
    make_timestamp_ns(coalesce(l.time_ns, l.observed_ns, 0)) AS "Timestamp",
    coalesce(l.trace_id, '') AS "TraceId",
    coalesce(l.span_id, '') AS "SpanId",
    coalesce(l.severity_text, '') AS "SeverityText",
    l.severity_number AS "SeverityNumber",
    coalesce(l.service_name, '') AS "ServiceName",
    coalesce(l.body, '') AS "Body",
    coalesce(r.attributes, '{}')::JSON::MAP(VARCHAR, VARCHAR) AS "ResourceAttributes",
    coalesce(l.scope_name, '') AS "ScopeName",
    coalesce(l.scope_version, '') AS "ScopeVersion",
    map_concat(
        coalesce(l.attributes, '{}')::JSON::MAP(VARCHAR, VARCHAR),
        map_from_entries(list_filter(
            [{key: 'stepmeter.rank', value: l.rank::VARCHAR}, {key: 'stepmeter.step', value: l.step::VARCHAR}],
            lambda fact: fact.value IS NOT NULL
        ))
    ) AS "LogAttributes",
    coalesce(l.event_name, '') AS "EventName"
FROM raw.logs AS l
LEFT JOIN raw.resources AS r USING (resource_id);

COMMENT ON VIEW otel_logs IS 'log records under the names of the Collector''s ClickHouse exporter';
COMMENT ON COLUMN otel_logs."Timestamp" IS 'when it happened, or else was observed, in UTC';
COMMENT ON COLUMN otel_logs."TraceId" IS 'trace that the record belongs to; empty for none';
COMMENT ON COLUMN otel_logs."SpanId" IS 'span that the record belongs to; empty for none';
COMMENT ON COLUMN otel_logs."SeverityText" IS 'severity as the sender calls it; empty when not given';
COMMENT ON COLUMN otel_logs."SeverityNumber" IS 'severity, 1 (trace) to 24 (fatal); 0 when not given';
COMMENT ON COLUMN otel_logs."ServiceName" IS 'service.name of the resource';
COMMENT ON COLUMN otel_logs."Body" IS 'the message; JSON when it is no text';
COMMENT ON COLUMN otel_logs."ResourceAttributes" IS 'attributes of the resource, values as text';
COMMENT ON COLUMN otel_logs."ScopeName" IS 'instrumentation scope';
COMMENT ON COLUMN otel_logs."ScopeVersion" IS 'version of the instrumentation scope';
COMMENT ON COLUMN otel_logs."LogAttributes" IS 'attributes of the record, values as text';
COMMENT ON COLUMN otel_logs."EventName" IS 'name of the event that the record is; empty for plain logs';
