"""The only room that knows processes: spawning, signalling, watching, and how loaded the machine is."""
