CREATE VIEW histograms AS
SELECT
    run_id, metric, unit, description, kind, temporality, start_ns, time_ns, rank, hw_id, service_name, scope_name,
    flags, count, sum, sum / nullif(count, 0) AS mean, min, max, bucket_counts, explicit_bounds, scale, zero_count,
    positive_offset, positive_bucket_counts, negative_offset, negative_bucket_counts, quantiles, quantile_values,
    resource_id, attributes, scope_version, exemplars
FROM raw.histogram_points;

COMMENT ON VIEW histograms IS 'a data point of a histogram, explicit or exponential, or of a summary';
COMMENT ON COLUMN histograms.mean IS 'sum over count, in the unit of column unit; null when there are no values';
