"""Alerts: states that begin and end, of which people are told when they begin, while they last, and when they are over.

``conditions`` says from facts which faults there are now.  ``plan`` says which states begin and end, and which messages
are due.  ``nodes`` keeps the states, so that several commands share them.  Only ``nodes`` waits.
"""
