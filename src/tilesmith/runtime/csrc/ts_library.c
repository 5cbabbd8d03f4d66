/* A library's handle: the machine, the packages that suit it, and what the calls leave behind. */
#include "ts_library_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KNOWN_FLAGS (TS_NEAREST | TS_NO_REFERENCE)

/* --- texts and records --- */

static _Thread_local char last_text[TS_KEY_ROOM + 512];

ts_status ts_library_fail(ts_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_text, sizeof last_text, format, arguments);
  va_end(arguments);
  for (char *letter = last_text; *letter; letter++)
    if ((unsigned char)*letter < ' ') *letter = '?';
  return status;
}

ts_status ts_library_failed(ts_status status, const ts_error *error) {
  return ts_library_fail(status, "%s", error->text);
}

const char *ts_library_last_error(void) {
  return last_text;
}

const char *ts_library_status_string(ts_status status) {
  return ts_status_text(status);
}

const char *ts_library_version(void) {
  return ts_library_contents.version;
}

ts_status ts_library_read(void *own, size_t own_size, const void *given, size_t least, const char *name) {
  if (given == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "%s is NULL", name);
  uint32_t size;
  memcpy(&size, given, sizeof size);
  if (size < least || size > 4096)
    return ts_library_fail(TS_BAD_ARGUMENT, "struct_size %u is no size of a %s", size, name);
  memset(own, 0, own_size);
  memcpy(own, given, size < own_size ? size : own_size);
  for (size_t at = own_size; at < size; at++)
    if (((const uint8_t *)given)[at])
      return ts_library_fail(TS_BAD_ARGUMENT, "byte %zu of a %s is not 0; this library knows %zu bytes: it is too old",
                             at, name, own_size);
  return TS_OK;
}

ts_status ts_library_write(void *given, const void *own, size_t own_size, const char *name) {
  if (given == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "%s is NULL", name);
  uint32_t size;
  memcpy(&size, given, sizeof size);
  if (size < 2 * sizeof size || size > 4096 || size % 4)
    return ts_library_fail(TS_BAD_ARGUMENT, "struct_size %u is no size of a %s", size, name);
  memset((char *)given + sizeof size, 0, size - sizeof size);
  memcpy((char *)given + sizeof size, (const char *)own + sizeof size,
         (size < own_size ? size : own_size) - sizeof size);
  return TS_OK;
}

/* --- descriptions --- */

ts_status ts_library_desc_init(ts_desc *desc, size_t struct_size, uint32_t abi_version) {
  if (ts_desc_init(desc, struct_size, abi_version) == TS_OK) return TS_OK;
  return ts_library_fail(TS_BAD_ARGUMENT,
                         "desc must not be NULL, struct_size (here %zu) is sizeof(ts_desc), abi_version (%u) is %d",
                         struct_size, abi_version, TS_ABI_VERSION);
}

ts_status ts_library_output_shape(const ts_desc *desc, ts_shape *shape) {
  ts_error error = {""};
  if (desc == NULL || shape == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "desc and shape must not be NULL");
  ts_status status = ts_output_shape(desc, shape, &error);
  return status == TS_OK ? status : ts_library_failed(status, &error);
}

/* --- packages --- */

/* The package as a source, and how its target suits the machine. */
static ts_fit look_at(const ts_library *library, ts_package *package, uint32_t origin, ts_source *source) {
  *source = (ts_source){package, ts_package_get_facts(package)->target, {"", "", 0, 0}, origin};
  const int is_known = ts_target_read(source->name, &source->target, NULL) == TS_OK;
  return is_known ? ts_target_fit(&library->machine, &source->target) : TS_FIT_NONE;
}

/* Whether its plans may run here. Those of a CPU run on any number of threads, and on each processor that has their
 * instructions; those of a GPU on its own card, unless the caller allows another one. */
static int is_allowed(const ts_library *library, ts_fit fit) {
  return fit == TS_FIT_EXACT || (fit != TS_FIT_NONE && (!library->machine.is_cuda || library->flags & TS_NEAREST));
}

/* Put a package before the others; the library closes it. */
static ts_status add(ts_library *library, const ts_source *source) {
  pthread_mutex_lock(&library->loading);
  ts_sources *before = atomic_load(&library->sources);
  const uint32_t count = before == NULL ? 0 : before->count;
  ts_sources *made = malloc(sizeof *made + (count + 1) * sizeof *made->items);
  if (made != NULL) {
    made->earlier = before;
    made->count = count + 1;
    made->items[0] = *source;
    if (count) memcpy(made->items + 1, before->items, count * sizeof *made->items);
    atomic_store(&library->sources, made);
  }
  pthread_mutex_unlock(&library->loading);
  return made == NULL ? ts_library_fail(TS_NO_MEMORY, "no memory for a list of %u packages", count + 1) : TS_OK;
}

static ts_status open_embedded(ts_library *library) {
  const ts_library_data *data = &ts_library_contents;
  ts_error error = {""};
  for (uint32_t i = data->package_count; i-- > 0;) { /* the first one comes first */
    ts_package *package;
    ts_status status = ts_package_open(data->packages[i].bytes, data->packages[i].size, &package, &error);
    if (status != TS_OK) return ts_library_fail(status, "the library's own package %u: %s", i, error.text);
    ts_source source;
    const int is_kept = is_allowed(library, look_at(library, package, TS_FROM_LIBRARY, &source));
    const size_t used = strlen(library->made_for);
    snprintf(library->made_for + used, sizeof library->made_for - used, "%s%s", used ? ", " : "", source.name);
    if (is_kept) status = add(library, &source);
    if (!is_kept || status != TS_OK) ts_package_close(package);
    if (status != TS_OK) return status;
  }
  return TS_OK;
}

static ts_status find_machine(ts_library *library, ts_error *error) {
  if (library->device < 0) return ts_machine_cpu(0, NULL, &library->machine, error);
  uint32_t count;
  ts_status status = ts_machine_gpus(&count, error);
  if (status == TS_OK && (uint32_t)library->device >= count)
    status = ts_fail(error, TS_CUDA_ERROR, "device %d of %u", library->device, count);
  return status == TS_OK ? ts_machine_gpu((uint32_t)library->device, &library->machine, error) : status;
}

ts_status ts_library_create(ts_library **library, int device, uint32_t flags) {
  if (library == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "library must not be NULL");
  *library = NULL;
  if (device < -1) return ts_library_fail(TS_BAD_ARGUMENT, "device %d is neither -1, the CPU, nor a GPU", device);
  if (flags & ~KNOWN_FLAGS) return ts_library_fail(TS_BAD_ARGUMENT, "flags 0x%x are not all known", (unsigned)flags);
  ts_library *made = calloc(1, sizeof *made);
  if (made == NULL) return ts_library_fail(TS_NO_MEMORY, "no memory for a library");
  made->device = device;
  made->flags = flags;
  if (pthread_mutex_init(&made->loading, NULL) != 0) {
    free(made);
    return ts_library_fail(TS_NO_MEMORY, "no memory for a library");
  }
  ts_error error = {""};
  ts_status status = find_machine(made, &error);
  if (status != TS_OK)
    ts_library_failed(status, &error);
  else {
    ts_target_name(&made->machine, made->name);
    status = open_embedded(made);
  }
  if (status == TS_OK)
    *library = made;
  else
    ts_library_destroy(made);
  return status;
}

void ts_library_destroy(ts_library *library) {
  if (library == NULL) return;
  ts_sources *all = atomic_load(&library->sources);
  for (uint32_t i = 0; all != NULL && i < all->count; i++)
    ts_package_close(all->items[i].package);
  for (ts_sources *at = all, *earlier; at != NULL; at = earlier) {
    earlier = at->earlier;
    free(at);
  }
  pthread_mutex_destroy(&library->loading);
  free(library);
}

ts_status ts_library_load(ts_library *library, const char *path) {
  if (library == NULL || path == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "library and path must not be NULL");
  ts_package *package;
  ts_error error = {""};
  ts_status status = ts_package_open_file(path, &package, &error);
  if (status != TS_OK) return ts_library_fail(status, "%s: %s", path, error.text);
  ts_source source;
  const ts_fit fit = look_at(library, package, TS_FROM_PACKAGE, &source);
  if (is_allowed(library, fit))
    status = add(library, &source);
  else
    status =
        ts_library_fail(TS_UNSUPPORTED, "%s is for %s; this machine is %s: install the package for it%s", path,
                        source.name, library->name, fit == TS_FIT_NONE ? "" : ", or allow this one with TS_NEAREST");
  if (status != TS_OK) ts_package_close(package);
  return status;
}

ts_status ts_library_set_threads(ts_library *library, uint32_t threads) {
  if (library == NULL) return ts_library_fail(TS_BAD_ARGUMENT, "library must not be NULL");
  if (threads > TS_MAX_THREADS)
    return ts_library_fail(TS_BAD_ARGUMENT, "threads %u is not from 0 to %d", threads, TS_MAX_THREADS);
  atomic_store(&library->threads, threads);
  return TS_OK;
}

const char *ts_library_machine(const ts_library *library) {
  return library == NULL ? "" : library->name;
}
