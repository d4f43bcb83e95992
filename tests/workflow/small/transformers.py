"""In place of transformers: no notebook of the small project runs a model, so none waits for it."""

raise ImportError("the small project has no transformers")
