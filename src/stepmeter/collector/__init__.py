"""The collector process: OTLP in, a durable store and OTLP out."""
