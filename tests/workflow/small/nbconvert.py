"""In place of nbconvert: no notebook of the small project is a page, so none waits for it."""

raise ImportError("the small project has no nbconvert")
