CREATE VIEW history AS
SELECT run_id, attempt, step, stream, rank, time_ns, "values", resource_id, attributes
FROM raw.rows
QUALIFY row_number() OVER (PARTITION BY rank, stream, step ORDER BY attempt DESC, time_ns DESC) = 1;

COMMENT ON VIEW history IS 'the rows of log(): one for each step of a stream and rank, that of the latest attempt';
