-- Spans and steps for a trace, in the order in which a viewer nests them: by start, outer before inner.
--
--   parameters: $1 streams (list of text, `default` for the unnamed one) or null, $2 ranks (list) or null,
--               $3 first step or null, $4 end of steps (exclusive) or null,
--               $5 start of time in ns or null, $6 end of time in ns (exclusive) or null
--
--   rank          global rank; 0 when not known
--   stream        stream of the process, `default` for the unnamed one
--   track         what it runs on: the name of a thread, `steps`, or the scope of a span that names no thread
--   thread_id     id of the thread; 0 when it names none
--   name          path of a user span, else its name; a step has its number
--   start_ns      start, Unix time in ns on the clock of its boot's first process
--   end_ns        end on the same clock, in ns
--   span_id       span id
--   parent_id     span id of the parent; null for a root
--   step          step that it belongs to; null outside steps
--   is_error      whether it ended with an error
--   attributes    all other attributes, as one JSON object
--   attempt       attempt of its process
WITH anchors AS (
    SELECT
        resource_id,
        first_value(clock_anchor_unix_ns - clock_anchor_monotonic_ns)
            OVER (PARTITION BY clock_boot_id ORDER BY clock_anchor_monotonic_ns)
        - (clock_anchor_unix_ns - clock_anchor_monotonic_ns) AS shift_ns
    FROM resources
    WHERE clock_boot_id IS NOT NULL AND clock_anchor_unix_ns IS NOT NULL AND clock_anchor_monotonic_ns IS NOT NULL
),
shifts AS (SELECT resource_id, any_value(shift_ns) AS shift_ns FROM anchors GROUP BY resource_id),
attempts AS (SELECT resource_id, any_value(attempt) AS attempt FROM resources GROUP BY resource_id),
found AS (
    SELECT
        coalesce(s.rank, 0) AS rank,
        coalesce(s.attributes ->> '$."stepmeter.stream"', 'default') AS stream,
        CASE
            WHEN s.scope_name = 'stepmeter' AND (s.name = 'step' OR s.phase IS NOT NULL) THEN 'steps'
            ELSE coalesce(s.attributes ->> '$."thread.name"', s.scope_name, 'spans')
        END AS track,
        coalesce(try_cast(s.attributes ->> '$."thread.id"' AS BIGINT), 0) AS thread_id,
        CASE
            WHEN s.scope_name = 'stepmeter' AND s.name = 'step' THEN 'step ' || s.step
            ELSE coalesce(s.attributes ->> '$."stepmeter.span.path"', s.name)
        END AS name,
        s.start_ns + coalesce(shifts.shift_ns, 0) AS start_ns,
        s.end_ns + coalesce(shifts.shift_ns, 0) AS end_ns,
        s.span_id,
        s.parent_span_id AS parent_id,
        s.step,
        s.status_code = 'Error' AS is_error,
        s.attributes,
        coalesce(attempts.attempt, 0) AS attempt
    FROM spans AS s
    LEFT JOIN shifts ON shifts.resource_id = s.resource_id
    LEFT JOIN attempts ON attempts.resource_id = s.resource_id
)
SELECT rank, stream, track, thread_id, name, start_ns, end_ns, span_id, parent_id, step, is_error, attributes, attempt
FROM found
WHERE
    ($1::VARCHAR[] IS NULL OR list_contains($1::VARCHAR[], stream))
    AND ($2::BIGINT[] IS NULL OR list_contains($2::BIGINT[], rank))
    AND ($3::BIGINT IS NULL OR step >= $3::BIGINT)
    AND ($4::BIGINT IS NULL OR step < $4::BIGINT)
    AND (($5::BIGINT IS NULL AND $6::BIGINT IS NULL) OR end_ns > start_ns)
    AND ($5::BIGINT IS NULL OR end_ns > $5::BIGINT)
    AND ($6::BIGINT IS NULL OR start_ns < $6::BIGINT)
    AND end_ns >= start_ns
ORDER BY start_ns, end_ns DESC, length(name)
