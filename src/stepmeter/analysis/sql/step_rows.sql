-- The steps of one attempt within a range of step numbers; one row for each rank and step.
--
--   parameters: attempt, first step, last step
--
--   source_id            position of the row: its end, Unix time in ns
--   rank                 global rank
--   step                 number of the step
--   warmup               whether the step compiled, initialised or was the first of its process
--   <phase>_cpu_ns       time in the phase on the CPU clock, in ns; null when it was not observed
--   <phase>_gpu_ns       the same on the device clock, in ns; null without one
--   traced_cpu_ns        traced time on the CPU clock, in ns
--   traced_gpu_ns        the same on the device clock, in ns; null without one
--   wait_ns              how long backward waited for other ranks, in ns; null but on a few steps
SELECT
    end_ns AS source_id,
    rank,
    step,
    coalesce(warmup, false) AS warmup,
    input_wait_cpu_ns,
    input_wait_gpu_ns,
    h2d_cpu_ns,
    h2d_gpu_ns,
    forward_cpu_ns,
    forward_gpu_ns,
    backward_cpu_ns,
    backward_gpu_ns,
    optimizer_cpu_ns,
    optimizer_gpu_ns,
    traced_cpu_ns,
    traced_gpu_ns,
    (attributes ->> '$."stepmeter.backward.wait_ns"')::BIGINT AS wait_ns
FROM steps
WHERE attempt = ? AND step BETWEEN ? AND ?
ORDER BY rank, step
