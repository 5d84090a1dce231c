"""All figures, by name."""

from figures import chapter4, chapter5, chapter6, chapter7, progress, rates

FIGURES = {f.name: f for chapter in (chapter4, chapter5, chapter6, chapter7, progress, rates) for f in chapter.FIGURES}
