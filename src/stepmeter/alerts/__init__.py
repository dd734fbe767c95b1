"""Alert rules over rows: a language, its evaluation, and the engine that fires."""
