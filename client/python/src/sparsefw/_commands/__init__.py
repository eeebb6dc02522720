"""Commands of the program `sparsefw`."""
