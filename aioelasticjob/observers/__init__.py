"""Who looks at what jobs do, and keeps it: nothing in here can delay a job."""
