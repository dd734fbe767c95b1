-- How far each rank of each attempt has come, every step counted; one row an attempt and rank, in their order.
--
--   attempt          which start of the run
--   rank             global rank
--   recorded_steps   steps in the store
--   first_step       least step number
--   last_step        greatest step number
--   first_start_ns   start of the earliest step, Unix time in ns
--   last_end_ns      end of the latest step, Unix time in ns
--   strategy         strategy that the latest step knew; null when none did
--   world_size       number of ranks that the latest step knew; null when none did
--   local_rank       rank within its node; null when not known
--   node_rank        rank of the node; null when not known
--   host             name of the host; null when not known
--   hw_id            UUID of the rank's GPU; null without one
SELECT
    attempt,
    rank,
    count(*) AS recorded_steps,
    min(step) AS first_step,
    max(step) AS last_step,
    min(start_ns) AS first_start_ns,
    max(end_ns) AS last_end_ns,
    arg_max(strategy, step) AS strategy,
    arg_max(world_size, step) AS world_size,
    arg_max(local_rank, step) AS local_rank,
    arg_max(node_rank, step) AS node_rank,
    arg_max(host, step) AS host,
    arg_max(hw_id, step) AS hw_id
FROM steps
GROUP BY attempt, rank
ORDER BY attempt, rank
