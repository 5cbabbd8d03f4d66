"""Constants measured on each card for estimates of time: one file for each card, and the choice for a target."""
