"""`clawq run`: one loop that looks, decides in one transaction, and then acts."""
