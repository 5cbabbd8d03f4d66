"""What was measured on each card, for estimates of time: one file a card, and the choice of the one for a target."""
