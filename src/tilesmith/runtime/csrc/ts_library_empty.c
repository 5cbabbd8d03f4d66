/* What a program has that links the runtime and not a C library: no kernels of its own, packages that it loads.
 * `tilesmith embed` compiles a record of its own in place of this file. */
#include "ts_library_data.h"

const ts_library_data ts_library_contents = {"tilesmith", "tilesmith", 0, 0, NULL, NULL};
