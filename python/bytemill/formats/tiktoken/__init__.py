"""tiktoken formats: rank files, their sidecar settings, and `tiktoken.Encoding` objects."""
