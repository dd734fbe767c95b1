-- The latest steps of one attempt, with where each ran.
--
--   parameters: attempt, first step
--
--   source_id            position of the row: its end, Unix time in ns
--   rank                 global rank
--   step                 number of the step
--   warmup               whether the step compiled, initialised or was the first of its process
--   start_ns             start of the step, Unix time in ns
--   strategy             strategy that the step knew; null when it did not
--   world_size           number of ranks that the step knew; null when it did not
--   local_rank           rank within its node; null when not known
--   node_rank            rank of the node; null when not known
--   host                 name of the host; null when not known
--   hw_id                UUID of the rank's GPU; null without one
--   <phase>_cpu_ns       time in the phase on the CPU clock, in ns; null when it was not observed
--   <phase>_gpu_ns       the same on the device clock, in ns; null without one
--   traced_cpu_ns        traced time on the CPU clock, in ns
--   traced_gpu_ns        the same on the device clock, in ns; null without one
SELECT
    end_ns AS source_id,
    rank,
    step,
    coalesce(warmup, false) AS warmup,
    start_ns,
    strategy,
    world_size,
    local_rank,
    node_rank,
    host,
    hw_id,
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
    traced_gpu_ns
FROM steps
WHERE attempt = ? AND step >= ?
