"""The command line: each command reads, calls the library once, and prints."""
