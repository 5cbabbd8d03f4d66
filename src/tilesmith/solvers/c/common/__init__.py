"""Code that several families in C share."""
