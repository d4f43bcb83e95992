"""The science of the artifact in five rooms, and what a run is told (`params`) and keeps (`store`)."""
