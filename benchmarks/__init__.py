"""The figures clawq promises, measured where this runs: `make bench`. Each module is one figure."""
