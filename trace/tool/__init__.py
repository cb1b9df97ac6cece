"""The command-line tool: files and options in, diagnostics and pages out. Nothing else in the library sees a path."""
