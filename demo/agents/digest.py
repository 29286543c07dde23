"""An agent that reads a folder of notes and prints a digest of them."""

import sys
from pathlib import Path

notes = sorted(Path(sys.argv[1]).glob("*.md"))
print(f"{len(notes)} notes today")
for note in notes:
    title, _, body = note.read_text(encoding="utf-8").partition("\n")
    print(f"- {title.lstrip('# ')}: {len(body.split())} words")
