"""Alerts: states that begin and end.  People are notified when one begins, while it lasts, and when it is over.

``conditions`` says from facts which faults there are now.  ``plan`` says which states begin and end, and which messages
are due.  ``nodes`` keeps the states, so that several commands share them.  Only ``nodes`` waits.
"""
