constexpr int GROUP = STRIDE_D * STRIDE_H * STRIDE_W * COLS; // columns of a position: phases and channels
constexpr int EACH = (GROUP + 3) / 4;                        // of them, of each of the four lanes of a row
constexpr int BLOCK_N = (TAPS_D * EACH + 1) / 2 * 8, ROW_COLUMNS = STRIDE_W * COLS;
constexpr int STEPS = BLOCK_C / 16, COLUMNS = TAPS_H * BLOCK_N;
