"""All figures, by name."""

from figures import chapter4, chapter5, chapter6, chapter7, coscheduling, linger, progress, rates

_ALL = (chapter4, chapter5, chapter6, chapter7, progress, rates, linger, coscheduling)
FIGURES = {figure.name: figure for chapter in _ALL for figure in chapter.FIGURES}
