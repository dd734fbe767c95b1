CREATE VIEW otel_metrics_gauge AS
SELECT
    coalesce(r.attributes, '{}')::JSON::MAP(VARCHAR, VARCHAR) AS "ResourceAttributes",
    coalesce(p.scope_name, '') AS "ScopeName",
    coalesce(p.scope_version, '') AS "ScopeVersion",
    coalesce(p.service_name, '') AS "ServiceName",
    p.metric AS "MetricName",
    coalesce(p.description, '') AS "MetricDescription",
    coalesce(p.unit, '') AS "MetricUnit",
    map_concat(
        coalesce(p.attributes, '{}')::JSON::MAP(VARCHAR, VARCHAR),
        map_from_entries(list_filter(
            [{key: 'rank', value: p.rank::VARCHAR}, {key: 'hw.id', value: p.hw_id}], lambda fact: fact.value IS NOT NULL
        ))
    ) AS "Attributes",
    make_timestamp_ns(coalesce(p.start_ns, 0)) AS "StartTimeUnix",
    make_timestamp_ns(p.time_ns) AS "TimeUnix",
    coalesce(p.double_value, p.int_value) AS "Value",
    p.flags::UINTEGER AS "Flags",
    coalesce(json_extract(p.exemplars, '$[*].value')::DOUBLE[], []) AS "Exemplars.Value"
FROM raw.metric_points AS p
LEFT JOIN raw.resources AS r USING (resource_id)
WHERE p.kind = 'gauge';

COMMENT ON VIEW otel_metrics_gauge IS 'points of gauges under the names of the Collector''s ClickHouse exporter';
COMMENT ON COLUMN otel_metrics_gauge."ResourceAttributes" IS 'attributes of the resource, values as text';
COMMENT ON COLUMN otel_metrics_gauge."ScopeName" IS 'instrumentation scope';
COMMENT ON COLUMN otel_metrics_gauge."ScopeVersion" IS 'version of the instrumentation scope';
COMMENT ON COLUMN otel_metrics_gauge."ServiceName" IS 'service.name of the resource';
COMMENT ON COLUMN otel_metrics_gauge."MetricName" IS 'name of the metric';
COMMENT ON COLUMN otel_metrics_gauge."MetricDescription" IS 'description of the metric';
COMMENT ON COLUMN otel_metrics_gauge."MetricUnit" IS 'unit in UCUM';
COMMENT ON COLUMN otel_metrics_gauge."Attributes" IS 'attributes of the point, values as text';
COMMENT ON COLUMN otel_metrics_gauge."StartTimeUnix" IS 'start of the interval, in UTC; 1970 when not given';
COMMENT ON COLUMN otel_metrics_gauge."TimeUnix" IS 'time of the point, in UTC';
COMMENT ON COLUMN otel_metrics_gauge."Value" IS 'value of the point, in MetricUnit';
COMMENT ON COLUMN otel_metrics_gauge."Flags" IS 'OTLP flags of the point';
COMMENT ON COLUMN otel_metrics_gauge."Exemplars.Value" IS 'values of the exemplars, in MetricUnit';
