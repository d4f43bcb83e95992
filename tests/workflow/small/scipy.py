"""In place of SciPy: no notebook of the small project computes with it, so none waits for it."""

raise ImportError("the small project has no SciPy")
