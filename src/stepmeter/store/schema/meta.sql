CREATE VIEW meta AS
SELECT key, value
FROM raw.meta;

COMMENT ON VIEW meta IS 'a key and a value about the run';
