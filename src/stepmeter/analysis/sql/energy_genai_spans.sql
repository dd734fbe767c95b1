-- Spans of agent frameworks that are calls of a model or of a tool, in the order of their starts; one row a span.
--
--   span_id         span id
--   trace_id        trace id
--   parent_span_id  span id of the parent; null for a root
--   name            name of the span
--   kind            llm_call or tool
--   start_ns        start, Unix time in ns
--   end_ns          end, Unix time in ns
--   model           model that was called; null when not given
--   input_tokens    prompt tokens of the call; null when not given
--   output_tokens   generated tokens of the call; null when not given
--
-- Spellings: gen_ai.operation.name (OpenTelemetry); gen_ai.system without an operation (OpenTelemetry before 1.28);
-- openinference.span.kind (OpenInference); llm.request.type and traceloop.span.kind (OpenLLMetry).
WITH spelled AS (
    SELECT
        span_id, trace_id, parent_span_id, name, start_ns, end_ns,
        attributes ->> '$."gen_ai.operation.name"' AS operation,
        coalesce(attributes ->> '$."gen_ai.provider.name"', attributes ->> '$."gen_ai.system"') AS provider,
        lower(attributes ->> '$."openinference.span.kind"') AS openinference,
        attributes ->> '$."llm.request.type"' AS openllmetry,
        attributes ->> '$."traceloop.span.kind"' AS traceloop,
        coalesce(
            attributes ->> '$."gen_ai.response.model"',
            attributes ->> '$."gen_ai.request.model"',
            attributes ->> '$."llm.model_name"'
        ) AS model,
        coalesce(
            attributes ->> '$."gen_ai.usage.input_tokens"',
            attributes ->> '$."gen_ai.usage.prompt_tokens"',
            attributes ->> '$."llm.usage.prompt_tokens"',
            attributes ->> '$."llm.token_count.prompt"'
        ) AS input_tokens,
        coalesce(
            attributes ->> '$."gen_ai.usage.output_tokens"',
            attributes ->> '$."gen_ai.usage.completion_tokens"',
            attributes ->> '$."llm.usage.completion_tokens"',
            attributes ->> '$."llm.token_count.completion"'
        ) AS output_tokens
    FROM spans
    WHERE attributes LIKE '%gen_ai.%' OR attributes LIKE '%openinference.%' OR attributes LIKE '%llm.%'
        OR attributes LIKE '%traceloop.%'
),
named AS (
    SELECT
        *,
        CASE
            WHEN operation IN ('chat', 'text_completion', 'generate_content') THEN 'llm_call'
            WHEN operation = 'execute_tool' THEN 'tool'
            WHEN operation IS NOT NULL THEN NULL
            WHEN openinference = 'llm' THEN 'llm_call'
            WHEN openinference = 'tool' THEN 'tool'
            WHEN openinference IS NOT NULL THEN NULL
            WHEN openllmetry IN ('chat', 'completion') THEN 'llm_call'
            WHEN traceloop = 'tool' THEN 'tool'
            WHEN openllmetry IS NOT NULL OR traceloop IS NOT NULL THEN NULL
            WHEN provider IS NOT NULL AND (input_tokens IS NOT NULL OR model IS NOT NULL) THEN 'llm_call'
        END AS kind
    FROM spelled
)
SELECT
    span_id, trace_id, parent_span_id, name, kind, start_ns, end_ns, model,
    TRY_CAST(input_tokens AS BIGINT) AS input_tokens,
    TRY_CAST(output_tokens AS BIGINT) AS output_tokens
FROM named
WHERE kind IS NOT NULL
ORDER BY start_ns, end_ns DESC, span_id
