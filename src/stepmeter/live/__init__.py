"""The live view in a terminal: a presenter over one session."""
