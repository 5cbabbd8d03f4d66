"""What several families in C share."""
