"""Pictures of runs as SVG, and the runs that they show."""
