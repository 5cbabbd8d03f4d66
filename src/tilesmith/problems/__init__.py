"""Problems: signatures, layouts, epilogues, geometry, rewrites and the driver-command grammar."""
