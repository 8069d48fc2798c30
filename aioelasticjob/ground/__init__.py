"""What the rest is built on: values, text and small tools.  It imports nothing else of this package."""
