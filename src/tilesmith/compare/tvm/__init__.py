"""TVM's MetaSchedule as a rival: it tunes in an environment of its own, its kernels run in the measuring process."""
