"""In place of seaborn: no notebook of the small project draws, so none waits for it."""

raise ImportError("the small project has no seaborn")
