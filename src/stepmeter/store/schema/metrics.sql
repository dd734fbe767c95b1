CREATE VIEW metrics AS
SELECT
    run_id, metric, unit, description, kind, temporality, is_monotonic, start_ns, time_ns, rank, hw_id,
    service_name, scope_name, flags, int_value, double_value, coalesce(double_value, int_value) AS value,
    resource_id, attributes, scope_version, exemplars
FROM raw.metric_points;

COMMENT ON VIEW metrics IS 'a number data point of a gauge or a sum';
COMMENT ON COLUMN metrics.run_id IS 'identity of the run, the same on all ranks';
COMMENT ON COLUMN metrics.value IS 'value of the point, integer or not, in the unit of column unit';
