"""What the console knows of the registries that it watches: their jobs, what is wrong with these, and who knows."""
