"""In place of scikit-learn: no notebook of the small project fits a map, so none waits for it."""

raise ImportError("the small project has no scikit-learn")
