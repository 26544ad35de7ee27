"""What a file is: tables of numbers, read, split, streamed and written."""
