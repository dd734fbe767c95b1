CREATE VIEW otel_metrics_histogram AS
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
    p.bucket_counts AS "BucketCounts",
    p.explicit_bounds AS "ExplicitBounds",
    p.flags::UINTEGER AS "Flags",
    coalesce(json_extract(p.exemplars, '$[*].value')::DOUBLE[], []) AS "Exemplars.Value",
    p.min AS "Min",
    p.max AS "Max",
    CASE p.temporality WHEN 'delta' THEN 1 WHEN 'cumulative' THEN 2 ELSE 0 END AS "AggregationTemporality"
FROM raw.histogram_points AS p
LEFT JOIN raw.resources AS r USING (resource_id)
WHERE p.kind = 'histogram';

COMMENT ON VIEW otel_metrics_histogram IS 'points of histograms with explicit buckets under the names of the Collector''s ClickHouse exporter';
COMMENT ON COLUMN otel_metrics_histogram."ResourceAttributes" IS 'attributes of the resource, values as text';
COMMENT ON COLUMN otel_metrics_histogram."ScopeName" IS 'instrumentation scope';
COMMENT ON COLUMN otel_metrics_histogram."ScopeVersion" IS 'version of the instrumentation scope';
COMMENT ON COLUMN otel_metrics_histogram."ServiceName" IS 'service.name of the resource';
COMMENT ON COLUMN otel_metrics_histogram."MetricName" IS 'name of the metric';
COMMENT ON COLUMN otel_metrics_histogram."MetricDescription" IS 'description of the metric';
COMMENT ON COLUMN otel_metrics_histogram."MetricUnit" IS 'unit in UCUM';
COMMENT ON COLUMN otel_metrics_histogram."Attributes" IS 'attributes of the point, values as text';
COMMENT ON COLUMN otel_metrics_histogram."StartTimeUnix" IS 'start of the interval, in UTC; 1970 when not given';
COMMENT ON COLUMN otel_metrics_histogram."TimeUnix" IS 'time of the point, in UTC';
COMMENT ON COLUMN otel_metrics_histogram."Count" IS 'number of values';
COMMENT ON COLUMN otel_metrics_histogram."Sum" IS 'sum of the values, in MetricUnit';
COMMENT ON COLUMN otel_metrics_histogram."BucketCounts" IS 'counts of the buckets';
COMMENT ON COLUMN otel_metrics_histogram."ExplicitBounds" IS 'upper bounds of the buckets but the last, in MetricUnit';
COMMENT ON COLUMN otel_metrics_histogram."Flags" IS 'OTLP flags of the point';
COMMENT ON COLUMN otel_metrics_histogram."Exemplars.Value" IS 'values of the exemplars, in MetricUnit';
COMMENT ON COLUMN otel_metrics_histogram."Min" IS 'least value, in MetricUnit; null when not given';
COMMENT ON COLUMN otel_metrics_histogram."Max" IS 'greatest value, in MetricUnit; null when not given';
COMMENT ON COLUMN otel_metrics_histogram."AggregationTemporality" IS '1 delta, 2 cumulative, 0 unspecified';
