"""From captures to OpenTelemetry; the only importer of its SDK."""
