"""This process and its children: what must hold although our own code sleeps."""
