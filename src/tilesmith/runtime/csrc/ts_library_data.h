/* What is linked into a C library: `tilesmith embed` writes one such record, `ts_library_contents`. */
#ifndef TS_LIBRARY_DATA_H
#define TS_LIBRARY_DATA_H

#include "tilesmith_runtime.h"

/* A package (`.kdb`) for one target. GPU kernels are in it; those of a CPU are linked. */
typedef struct ts_library_package {
  const void *bytes;
  size_t size;
} ts_library_package;

typedef struct ts_library_kernel {
  const char *symbol; /* as plans name it; the function may be linked under another name */
  ts_kernel kernel;
} ts_library_kernel;

/* The kernels of a binary of which plans know the digest. */
typedef struct ts_library_artifact {
  uint8_t digest[32];
  uint32_t count;
  const ts_library_kernel *kernels;
} ts_library_artifact;

typedef struct ts_library_data {
  const char *name;    /* of the library: its prefix */
  const char *version; /* what ts_library_version answers */
  uint32_t package_count;
  uint32_t artifact_count;
  const ts_library_package *packages;
  const ts_library_artifact *artifacts; /* by digest, ascending as memcmp orders them */
} ts_library_data;

extern const ts_library_data ts_library_contents;

#endif
