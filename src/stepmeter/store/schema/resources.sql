CREATE VIEW resources AS
SELECT
    run_id, resource_id, service_name, service_instance_id, host, pid, attempt, rank, local_rank, node_rank,
    world_size, hw_id, clock_anchor_unix_ns, clock_anchor_monotonic_ns, clock_boot_id, attributes
FROM raw.resources;

COMMENT ON VIEW resources IS 'what sent telemetry: a process with its host, rank and device, once';
