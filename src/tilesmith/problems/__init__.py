"""What is asked: signatures, layouts, epilogues, geometry, rewrites and the driver-command grammar."""
