-- Paths of the spans that the program made with stepmeter.span, in the order of the alphabet; the first ten.
--
--   path  path
SELECT DISTINCT attributes ->> '$."stepmeter.span.path"' AS path
FROM spans
WHERE attributes LIKE '%stepmeter.span.path%'
ORDER BY path
LIMIT 10
