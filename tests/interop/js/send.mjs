// Sends two spans, three metrics and a log record through the official exporters of one protocol, then ends.
//
//     node send.mjs grpc|http/protobuf|http/json HOST:PORT RUN_ID [gzip]
import { SpanStatusCode, context, trace } from "@opentelemetry/api";
import { SeverityNumber } from "@opentelemetry/api-logs";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchLogRecordProcessor, LoggerProvider } from "@opentelemetry/sdk-logs";
import { MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";

const PACKAGES = { grpc: "grpc", "http/protobuf": "proto", "http/json": "http" };

const [protocol, address, runId, compression] = process.argv.slice(2);

async function exporter(signal, name) {
  const exporters = await import(`@opentelemetry/exporter-${signal}-otlp-${PACKAGES[protocol]}`);
  const path = { trace: "traces", metrics: "metrics", logs: "logs" }[signal];
  const url = protocol === "grpc" ? `http://${address}` : `http://${address}/v1/${path}`;
  return new exporters[name]({ url, compression: compression ?? "none" });
}

const resource = resourceFromAttributes({
  "service.name": "node",
  "host.name": "host",
  "stepmeter.run.id": runId,
});
const tracers = new BasicTracerProvider({
  resource,
  spanProcessors: [new BatchSpanProcessor(await exporter("trace", "OTLPTraceExporter"))],
});
const meters = new MeterProvider({
  resource,
  readers: [new PeriodicExportingMetricReader({ exporter: await exporter("metrics", "OTLPMetricExporter") })],
});
const loggers = new LoggerProvider({
  resource,
  processors: [new BatchLogRecordProcessor({ exporter: await exporter("logs", "OTLPLogExporter") })],
});

const tracer = tracers.getTracer("client", "1.0");
const parent = tracer.startSpan("request", { attributes: { "gen_ai.request.model": "m", tokens: 3, share: 0.5 } });
parent.addEvent("token", { n: 1 });
const child = tracer.startSpan("call", { attributes: { sizes: [1, 2] } }, trace.setSpan(context.active(), parent));
child.setStatus({ code: SpanStatusCode.ERROR, message: "no such file" });
child.end();
parent.end();

const meter = meters.getMeter("client");
meter.createCounter("calls", { unit: "{call}" }).add(2, { kind: "a" });
meter.createGauge("heat", { unit: "Cel" }).record(41.5);
meter.createHistogram("wait", { unit: "s", advice: { explicitBucketBoundaries: [1, 2] } }).record(1.5);

loggers.getLogger("client").emit({
  body: "careful",
  severityNumber: SeverityNumber.WARN,
  severityText: "WARN",
  attributes: { why: "test" },
});

await Promise.all([tracers.shutdown(), meters.shutdown(), loggers.shutdown()]);
console.log(JSON.stringify({ trace: parent.spanContext().traceId, spans: [parent, child].map((s) => s.spanContext().spanId) }));
