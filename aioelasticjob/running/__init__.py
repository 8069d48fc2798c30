"""When and how a job runs here."""
