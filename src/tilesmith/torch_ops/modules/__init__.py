"""Models: ``optimize`` replaces the layers of a model and fuses what follows them; ``restore`` undoes it."""
