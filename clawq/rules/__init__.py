"""Decisions as pure functions: no clock, no file, no database. `now` is an argument, a value comes back."""
