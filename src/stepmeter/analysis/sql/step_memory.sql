-- Peak memory of the steps of one attempt within a range of step numbers; one row for each rank and step that has one.
--
--   parameters: attempt, first step, last step
--
--   rank                   global rank
--   step                   number of the step
--   peak_allocated_bytes   peak of the memory that tensors held, in bytes; null when not measured
--   peak_reserved_bytes    peak of the memory that the allocator held, in bytes; null when not measured
SELECT rank, step, peak_allocated_bytes, peak_reserved_bytes
FROM steps
WHERE attempt = ? AND step BETWEEN ? AND ? AND (peak_allocated_bytes IS NOT NULL OR peak_reserved_bytes IS NOT NULL)
ORDER BY rank, step
