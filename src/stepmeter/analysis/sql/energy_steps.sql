-- Steps of one rank, or of all, in the order of their ends; one row a step.
--
--   parameters: attempt, rank or null for all of them, how many steps at most, the latest of them, first step
--
--   rank               global rank
--   step               number of the step
--   start_ns           start: its first observed work, Unix time in ns
--   end_ns             end: its boundary, Unix time in ns
--   device_start_ns    start of its device work, Unix time in ns; 0 when not known
--   samples            samples in the step; -1 when not known
--   tokens             tokens in the step; -1 when not known
--   warmup             whether it belongs to the warm-up
--   has_gpu_clock      whether the phases' times are of the device's clock
--   input_wait_ns      time in the phase, in ns, on the device's clock where all of the step's phases have it, else on
--   h2d_ns             the CPU's; 0 when not observed
--   forward_ns
--   backward_ns
--   optimizer_ns
SELECT
    rank,
    step,
    start_ns,
    end_ns,
    coalesce(device_start_ns, 0) AS device_start_ns,
    coalesce(samples, -1) AS samples,
    coalesce(tokens, -1) AS tokens,
    coalesce(warmup, false) AS warmup,
    traced_gpu_ns IS NOT NULL AS has_gpu_clock,
    coalesce(input_wait_cpu_ns, 0) AS input_wait_ns,
    coalesce(CASE WHEN traced_gpu_ns IS NULL THEN h2d_cpu_ns ELSE h2d_gpu_ns END, 0) AS h2d_ns,
    coalesce(CASE WHEN traced_gpu_ns IS NULL THEN forward_cpu_ns ELSE forward_gpu_ns END, 0) AS forward_ns,
    coalesce(CASE WHEN traced_gpu_ns IS NULL THEN backward_cpu_ns ELSE backward_gpu_ns END, 0) AS backward_ns,
    coalesce(CASE WHEN traced_gpu_ns IS NULL THEN optimizer_cpu_ns ELSE optimizer_gpu_ns END, 0) AS optimizer_ns
FROM steps
WHERE attempt = $1 AND ($2::BIGINT IS NULL OR rank = $2::BIGINT)
    AND step > (SELECT max(step) FROM steps WHERE attempt = $1 AND ($2::BIGINT IS NULL OR rank = $2::BIGINT)) - $3
    AND step >= $4
ORDER BY rank, end_ns
