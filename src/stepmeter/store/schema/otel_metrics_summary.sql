CREATE VIEW otel_metrics_summary AS
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
    p.count AS "Count",
    coalesce(p.sum, 0) AS "Sum",
    p.quantiles AS "ValueAtQuantiles.Quantile",
    p.quantile_values AS "ValueAtQuantiles.Value",
    p.flags::UINTEGER AS "Flags"
FROM raw.histogram_points AS p
LEFT JOIN raw.resources AS r USING (resource_id)
WHERE p.kind = 'summary';

COMMENT ON VIEW otel_metrics_summary IS 'points of summaries under the names of the Collector''s ClickHouse exporter';
COMMENT ON COLUMN otel_metrics_summary."ResourceAttributes" IS 'attributes of the resource, values as text';
COMMENT ON COLUMN otel_metrics_summary."ScopeName" IS 'instrumentation scope';
COMMENT ON COLUMN otel_metrics_summary."ScopeVersion" IS 'version of the instrumentation scope';
COMMENT ON COLUMN otel_metrics_summary."ServiceName" IS 'service.name of the resource';
COMMENT ON COLUMN otel_metrics_summary."MetricName" IS 'name of the metric';
COMMENT ON COLUMN otel_metrics_summary."MetricDescription" IS 'description of the metric';
COMMENT ON COLUMN otel_metrics_summary."MetricUnit" IS 'unit in UCUM';
COMMENT ON COLUMN otel_metrics_summary."Attributes" IS 'attributes of the point, values as text';
COMMENT ON COLUMN otel_metrics_summary."StartTimeUnix" IS 'start of the interval, in UTC; 1970 when not given';
COMMENT ON COLUMN otel_metrics_summary."TimeUnix" IS 'time of the point, in UTC';
COMMENT ON COLUMN otel_metrics_summary."Count" IS 'number of values';
COMMENT ON COLUMN otel_metrics_summary."Sum" IS 'sum of the values, in MetricUnit';
COMMENT ON COLUMN otel_metrics_summary."ValueAtQuantiles.Quantile" IS 'quantiles, 0 to 1';
COMMENT ON COLUMN otel_metrics_summary."ValueAtQuantiles.Value" IS 'values at those quantiles, in MetricUnit';
COMMENT ON COLUMN otel_metrics_summary."Flags" IS 'OTLP flags of the point';
