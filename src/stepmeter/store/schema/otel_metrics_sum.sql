CREATE VIEW otel_metrics_sum AS
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
    coalesce(json_extract(p.exemplars, '$[*].value')::DOUBLE[], []) AS "Exemplars.Value",
    CASE p.temporality WHEN 'delta' THEN 1 WHEN 'cumulative' THEN 2 ELSE 0 END AS "AggregationTemporality",
    coalesce(p.is_monotonic, false) AS "IsMonotonic"
FROM raw.metric_points AS p
LEFT JOIN raw.resources AS r USING (resource_id)
WHERE p.kind = 'sum';

COMMENT ON VIEW otel_metrics_sum IS 'points of sums under the names of the Collector''s ClickHouse exporter';
COMMENT ON COLUMN otel_metrics_sum."ResourceAttributes" IS 'attributes of the resource, values as text';
COMMENT ON COLUMN otel_metrics_sum."ScopeName" IS 'instrumentation scope';
COMMENT ON COLUMN otel_metrics_sum."ScopeVersion" IS 'version of the instrumentation scope';
COMMENT ON COLUMN otel_metrics_sum."ServiceName" IS 'service.name of the resource';
COMMENT ON COLUMN otel_metrics_sum."MetricName" IS 'name of the metric';
COMMENT ON COLUMN otel_metrics_sum."MetricDescription" IS 'description of the metric';
COMMENT ON COLUMN otel_metrics_sum."MetricUnit" IS 'unit in UCUM';
COMMENT ON COLUMN otel_metrics_sum."Attributes" IS 'attributes of the point, values as text';
COMMENT ON COLUMN otel_metrics_sum."StartTimeUnix" IS 'start of the interval, in UTC; 1970 when not given';
COMMENT ON COLUMN otel_metrics_sum."TimeUnix" IS 'time of the point, in UTC';
COMMENT ON COLUMN otel_metrics_sum."Value" IS 'value of the point, in MetricUnit';
COMMENT ON COLUMN otel_metrics_sum."Flags" IS 'OTLP flags of the point';
COMMENT ON COLUMN otel_metrics_sum."Exemplars.Value" IS 'values of the exemplars, in MetricUnit';
COMMENT ON COLUMN otel_metrics_sum."AggregationTemporality" IS '1 delta, 2 cumulative, 0 unspecified';
COMMENT ON COLUMN otel_metrics_sum."IsMonotonic" IS 'whether the sum only grows';
