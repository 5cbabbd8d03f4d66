"""First layers whose rows of pixels lie as they are in shared memory, multiplied by warpgroups."""
