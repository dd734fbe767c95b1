-- Spans and steps for a trace, in the order in which a viewer nests them: by start, outer before inner.
--
--   parameters: $1 streams (list of text, `default` for the unnamed one) or null, $2 ranks (list) or null,
--               $3 first step or null, $4 end of steps (exclusive) or null,
--               $5 start of time in ns or null, $6 end of time in ns (exclusive) or null
--
--   rank          global rank; 0 when not known
--   stream        stream of the process, `default` for the unnamed one
--   track         what it runs on: the name of a thread, `steps`, or the scope of a span that names no thread
--   thread_id     id of the thread; 0 when it names none, and for steps
--   start_ns      start, Unix time in ns on the clock of its boot's first process
--   end_ns        end on the same clock, in ns
--   span_id       span id
--   parent_id     span id of the parent; null for a root
--   step          number of a step; null for other spans
--   attempt       attempt of its process
--   event         the event as JSON, but for its process, thread and start and its last two braces: the name is the path
--                 of a user span and a step's has its number, arguments are the attributes and the step
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
        s.scope_name = 'stepmeter' AND s.name = 'step' AS is_step,
        s.scope_name = 'stepmeter' AND (s.name = 'step' OR s.phase IS NOT NULL) AS is_training,
        s.name,
        s.scope_name,
        -- one look at the attributes for all of them
        json_extract_string(
            s.attributes,
            ['$."stepmeter.stream"', '$."thread.name"', '$."thread.id"', '$."stepmeter.span.path"', '$.step']
        ) AS said,
        s.start_ns + coalesce(shifts.shift_ns, 0) AS start_ns,
        s.end_ns + coalesce(shifts.shift_ns, 0) AS end_ns,
        s.span_id,
        s.parent_span_id AS parent_id,
        s.step,
        coalesce(s.status_code = 'Error', false) AS is_error,
        s.attributes,
        coalesce(attempts.attempt, 0) AS attempt
    FROM spans AS s
    LEFT JOIN shifts ON shifts.resource_id = s.resource_id
    LEFT JOIN attempts ON attempts.resource_id = s.resource_id
),
named AS (
    SELECT
        * EXCLUDE (name),
        coalesce(said[1], 'default') AS stream,
        CASE WHEN is_training THEN 'steps' ELSE coalesce(said[2], scope_name, 'spans') END AS track,
        CASE WHEN is_training THEN 0 ELSE coalesce(try_cast(said[3] AS BIGINT), 0) END AS thread_id,
        CASE WHEN is_step THEN 'step ' || step ELSE coalesce(said[4], name) END AS name,
        coalesce(substr(attributes, 2, length(attributes) - 2), '') AS described,
        CASE WHEN step IS NULL OR said[5] IS NOT NULL THEN '' ELSE '"step":' || step END AS numbered
    FROM found
)
SELECT
    rank, stream, track, thread_id, start_ns, end_ns, span_id, parent_id,
    CASE WHEN is_step THEN step END AS step,
    attempt,
    '"ph":"X","name":' || to_json(name)::VARCHAR || ',"cat":' || to_json(stream)::VARCHAR
    || ',"dur":' || ((end_ns - start_ns)::DOUBLE / 1000)
    || CASE WHEN is_error THEN ',"cname":"terrible"' ELSE '' END
    || ',"args":{' || described || CASE WHEN described = '' OR numbered = '' THEN '' ELSE ',' END || numbered AS event
FROM named
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
