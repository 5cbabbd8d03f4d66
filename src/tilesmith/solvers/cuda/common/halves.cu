// One of the two elements of a word, by one instruction.
TS_MMA_DEVICE float half_of(bf16, u32 word, int i) { return __uint_as_float(i ? word & 0xffff0000u : word << 16); }
TS_MMA_DEVICE float half_of(fp16, u32 word, int i) { return widened(fp16{(u16)(i ? word >> 16 : word)}); }
TS_MMA_DEVICE float half_of(float, u32, int) { return 0.0f; } // never called
