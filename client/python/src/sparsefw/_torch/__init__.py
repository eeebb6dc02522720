"""What sparsefw.torch is made of."""
