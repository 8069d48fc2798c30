"""Which connections the console accepts: from whom, how many, and how much they may send."""
