"""Library of the artifact: subpackages, the parameters of a run (`params`) and its stored frames
(`store`)."""
