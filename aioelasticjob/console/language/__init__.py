"""What the console says in English and in Chinese; the catalogues are in ``locale``."""
