"""The Python API: what ``import clawq`` offers, each module loaded when something of it is asked for."""
