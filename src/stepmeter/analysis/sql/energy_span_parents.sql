-- Parents of the spans of some traces; one row a span.
--
--   parameter: list of trace ids
--
--   trace_id         trace id
--   span_id          span id
--   parent_span_id   span id of the parent; null for a root
SELECT trace_id, span_id, parent_span_id
FROM spans
WHERE trace_id IN (SELECT unnest($1))
