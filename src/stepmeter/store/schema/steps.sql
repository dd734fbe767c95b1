CREATE VIEW steps AS
SELECT
    run_id, attempt, rank, local_rank, node_rank, world_size, host, hw_id, strategy, step,
    start_ns, end_ns, end_ns - start_ns AS duration_ns,
    traced_cpu_ns, traced_gpu_ns,
    input_wait_cpu_ns, input_wait_gpu_ns, input_wait_count,
    h2d_cpu_ns, h2d_gpu_ns, h2d_count,
    forward_cpu_ns, forward_gpu_ns, forward_count,
    backward_cpu_ns, backward_gpu_ns, backward_count,
    optimizer_cpu_ns, optimizer_gpu_ns, optimizer_count,
    microbatches, samples, tokens, peak_allocated_bytes, peak_reserved_bytes,
    device_start_ns, device_end_ns, warmup, trace_id, span_id, resource_id, attributes
FROM raw.steps;

COMMENT ON VIEW steps IS 'a completed step of a rank, once: keyed by attempt, rank and step';
COMMENT ON COLUMN steps.duration_ns IS 'from start to end of the step, in ns';
