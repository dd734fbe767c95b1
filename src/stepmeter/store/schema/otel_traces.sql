CREATE VIEW otel_traces AS
WITH named AS (
    SELECT
        start_ns, trace_id, span_id, parent_span_id, trace_state, name, kind, service_name, scope_name, scope_version,
        end_ns - start_ns AS duration_ns, status_code, status_message, events, links, resource_id, attributes,
        [
            {key: 'stepmeter.rank', value: rank::VARCHAR},
            {key: 'stepmeter.step', value: step::VARCHAR},
            {key: 'stepmeter.phase', value: phase}
        ] AS facts
    FROM raw.spans
    UNION ALL
    SELECT
        start_ns, trace_id, span_id, NULL, NULL, 'step', 'Internal', NULL, 'stepmeter', NULL,
        end_ns - start_ns, 'Unset', NULL, NULL, NULL, resource_id, attributes,
        [
            {key: 'stepmeter.step', value: step::VARCHAR},
            {key: 'stepmeter.attempt', value: attempt::VARCHAR},
            {key: 'stepmeter.rank', value: rank::VARCHAR},
            {key: 'stepmeter.local_rank', value: local_rank::VARCHAR},
            {key: 'stepmeter.node_rank', value: node_rank::VARCHAR},
            {key: 'stepmeter.world_size', value: world_size::VARCHAR},
            {key: 'stepmeter.strategy', value: strategy::VARCHAR},
            {key: 'hw.id', value: hw_id::VARCHAR},
            {key: 'stepmeter.microbatches', value: microbatches::VARCHAR},
            {key: 'stepmeter.samples', value: samples::VARCHAR},
            {key: 'stepmeter.tokens', value: tokens::VARCHAR},
            {key: 'stepmeter.traced.cpu_ns', value: traced_cpu_ns::VARCHAR},
            {key: 'stepmeter.traced.gpu_ns', value: traced_gpu_ns::VARCHAR},
            {key: 'stepmeter.phase.input_wait.cpu_ns', value: input_wait_cpu_ns::VARCHAR},
            {key: 'stepmeter.phase.input_wait.gpu_ns', value: input_wait_gpu_ns::VARCHAR},
            {key: 'stepmeter.phase.input_wait.count', value: input_wait_count::VARCHAR},
            {key: 'stepmeter.phase.h2d.cpu_ns', value: h2d_cpu_ns::VARCHAR},
            {key: 'stepmeter.phase.h2d.gpu_ns', value: h2d_gpu_ns::VARCHAR},
            {key: 'stepmeter.phase.h2d.count', value: h2d_count::VARCHAR},
            {key: 'stepmeter.phase.forward.cpu_ns', value: forward_cpu_ns::VARCHAR},
            {key: 'stepmeter.phase.forward.gpu_ns', value: forward_gpu_ns::VARCHAR},
            {key: 'stepmeter.phase.forward.count', value: forward_count::VARCHAR},
            {key: 'stepmeter.phase.backward.cpu_ns', value: backward_cpu_ns::VARCHAR},
            {key: 'stepmeter.phase.backward.gpu_ns', value: backward_gpu_ns::VARCHAR},
            {key: 'stepmeter.phase.backward.count', value: backward_count::VARCHAR},
            {key: 'stepmeter.phase.optimizer.cpu_ns', value: optimizer_cpu_ns::VARCHAR},
            {key: 'stepmeter.phase.optimizer.gpu_ns', value: optimizer_gpu_ns::VARCHAR},
            {key: 'stepmeter.phase.optimizer.count', value: optimizer_count::VARCHAR},
            {key: 'stepmeter.memory.peak_allocated', value: peak_allocated_bytes::VARCHAR},
            {key: 'stepmeter.memory.peak_reserved', value: peak_reserved_bytes::VARCHAR},
            {key: 'stepmeter.device.start_ns', value: device_start_ns::VARCHAR},
            {key: 'stepmeter.device.end_ns', value: device_end_ns::VARCHAR},
            {key: 'stepmeter.warmup', value: warmup::VARCHAR}
        ]
    FROM raw.steps
)
SELECT
    make_timestamp_ns(s.start_ns) AS "Timestamp",
    s.trace_id AS "TraceId",
    s.span_id AS "SpanId",
    coalesce(s.parent_span_id, '') AS "ParentSpanId",
    coalesce(s.trace_state, '') AS "TraceState",
    s.name AS "SpanName",
    s.kind AS "SpanKind",
    coalesce(s.service_name, r.service_name, '') AS "ServiceName",
    coalesce(r.attributes, '{}')::JSON::MAP(VARCHAR, VARCHAR) AS "ResourceAttributes",
    coalesce(s.scope_name, '') AS "ScopeName",
    coalesce(s.scope_version, '') AS "ScopeVersion",
    map_concat(
        coalesce(s.attributes, '{}')::JSON::MAP(VARCHAR, VARCHAR),
        map_from_entries(list_filter(s.facts, lambda fact: fact.value IS NOT NULL))
    ) AS "SpanAttributes",
    s.duration_ns::UBIGINT AS "Duration",
    s.status_code AS "StatusCode",
    coalesce(s.status_message, '') AS "StatusMessage",
    list_transform(
        coalesce(json_extract(s.events, '$[*].time_ns'), []), lambda item: make_timestamp_ns(item::BIGINT)
    ) AS "Events.Timestamp",
    coalesce(json_extract_string(s.events, '$[*].name'), []) AS "Events.Name",
    list_transform(
        coalesce(json_extract(s.events, '$[*].attributes'), []), lambda item: item::MAP(VARCHAR, VARCHAR)
    ) AS "Events.Attributes",
    coalesce(json_extract_string(s.links, '$[*].trace_id'), []) AS "Links.TraceId",
    coalesce(json_extract_string(s.links, '$[*].span_id'), []) AS "Links.SpanId",
    list_transform(
        coalesce(json_extract(s.links, '$[*].attributes'), []), lambda item: item::MAP(VARCHAR, VARCHAR)
    ) AS "Links.Attributes"
FROM named AS s
LEFT JOIN raw.resources AS r USING (resource_id);

COMMENT ON VIEW otel_traces IS 'spans under the names of the Collector''s ClickHouse exporter, for queries written for it';
COMMENT ON COLUMN otel_traces."Timestamp" IS 'start of the span, in UTC';
COMMENT ON COLUMN otel_traces."TraceId" IS 'trace id, 32 hexadecimal digits';
COMMENT ON COLUMN otel_traces."SpanId" IS 'span id, 16 hexadecimal digits';
COMMENT ON COLUMN otel_traces."ParentSpanId" IS 'span id of the parent; empty for a root';
COMMENT ON COLUMN otel_traces."TraceState" IS 'W3C trace state; empty when there is none';
COMMENT ON COLUMN otel_traces."SpanName" IS 'name of the span';
COMMENT ON COLUMN otel_traces."SpanKind" IS 'Internal, Server, Client, Producer, Consumer or Unspecified';
COMMENT ON COLUMN otel_traces."ServiceName" IS 'service.name of the resource';
COMMENT ON COLUMN otel_traces."ResourceAttributes" IS 'attributes of the resource, values as text';
COMMENT ON COLUMN otel_traces."ScopeName" IS 'instrumentation scope';
COMMENT ON COLUMN otel_traces."ScopeVersion" IS 'version of the instrumentation scope';
COMMENT ON COLUMN otel_traces."SpanAttributes" IS 'attributes of the span, those with columns of their own included, values as text';
COMMENT ON COLUMN otel_traces."Duration" IS 'from start to end of the span, in ns';
COMMENT ON COLUMN otel_traces."StatusCode" IS 'Unset, Ok or Error';
COMMENT ON COLUMN otel_traces."StatusMessage" IS 'message of the status; empty when there is none';
COMMENT ON COLUMN otel_traces."Events.Timestamp" IS 'times of the events, in UTC';
COMMENT ON COLUMN otel_traces."Events.Name" IS 'names of the events';
COMMENT ON COLUMN otel_traces."Events.Attributes" IS 'attributes of the events, values as text';
COMMENT ON COLUMN otel_traces."Links.TraceId" IS 'trace ids of the links';
COMMENT ON COLUMN otel_traces."Links.SpanId" IS 'span ids of the links';
COMMENT ON COLUMN otel_traces."Links.Attributes" IS 'attributes of the links, values as text';
