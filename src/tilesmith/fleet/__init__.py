"""Problems tuned by many workers: the processes of one machine, or those of a cluster."""
