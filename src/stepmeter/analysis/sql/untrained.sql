-- What a run holds beside training steps; one row.
--
--   spans      spans of other libraries
--   own_spans  spans that the program made with stepmeter.span
--   own_path   path of the first of these; null without one
--   rows       rows that the program logged
WITH own AS (
    SELECT attributes ->> '$."stepmeter.span.path"' AS path, start_ns
    FROM spans
    WHERE scope_name = 'stepmeter' AND attributes LIKE '%stepmeter.span.path%'
)
SELECT
    (SELECT count(*) FROM spans WHERE scope_name IS DISTINCT FROM 'stepmeter') AS spans,
    (SELECT count(*) FROM own) AS own_spans,
    (SELECT min_by(path, start_ns) FROM own) AS own_path,
    (SELECT count(*) FROM history) AS rows
