CREATE VIEW step_phases AS
SELECT run_id, attempt, rank, step, start_ns, p.phase AS phase, p.cpu_ns AS cpu_ns, p.gpu_ns AS gpu_ns, p.regions AS regions
FROM (
    SELECT
        run_id, attempt, rank, step, start_ns,
        unnest([
            {phase: 'input_wait', cpu_ns: input_wait_cpu_ns, gpu_ns: input_wait_gpu_ns, regions: input_wait_count},
            {phase: 'h2d', cpu_ns: h2d_cpu_ns, gpu_ns: h2d_gpu_ns, regions: h2d_count},
            {phase: 'forward', cpu_ns: forward_cpu_ns, gpu_ns: forward_gpu_ns, regions: forward_count},
            {phase: 'backward', cpu_ns: backward_cpu_ns, gpu_ns: backward_gpu_ns, regions: backward_count},
            {phase: 'optimizer', cpu_ns: optimizer_cpu_ns, gpu_ns: optimizer_gpu_ns, regions: optimizer_count}
        ]) AS p
    FROM steps
)
WHERE p.cpu_ns IS NOT NULL OR p.gpu_ns IS NOT NULL OR p.regions IS NOT NULL;

COMMENT ON VIEW step_phases IS 'one phase of one step of one rank, for the phases that were observed';
COMMENT ON COLUMN step_phases.phase IS 'input_wait, h2d, forward, backward or optimizer';
COMMENT ON COLUMN step_phases.cpu_ns IS 'time of the step in the phase on the CPU clock, in ns';
COMMENT ON COLUMN step_phases.gpu_ns IS 'time of the step in the phase on the device clock, in ns; null without one';
COMMENT ON COLUMN step_phases.regions IS 'number of regions of the phase in the step';
