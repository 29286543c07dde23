"""`clawq mcp`: the queue as tools of the Model Context Protocol. The only user of its SDK."""
