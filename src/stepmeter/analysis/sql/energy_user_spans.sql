-- User spans of a path, in the order of their starts; one row a span.
--
--   parameter: path, in which * stands for any text
--
--   name       path of the span
--   start_ns   start, Unix time in ns
--   end_ns     end, Unix time in ns
--   span_id    span id
SELECT attributes ->> '$."stepmeter.span.path"' AS name, start_ns, end_ns, span_id
FROM spans
WHERE (attributes ->> '$."stepmeter.span.path"') GLOB $1
ORDER BY start_ns, end_ns, span_id
