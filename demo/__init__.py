"""A small fleet from first enqueue to last outcome: `make demo`. Uses nothing but the command line."""
