"""The store: a run is a directory of Parquet segments and a DuckDB file of views."""
