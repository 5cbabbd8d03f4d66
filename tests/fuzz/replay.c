/* Runs the fuzzed function once on each file of a folder: for compilers that have sanitizers and no libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv) {
  DIR *folder = argc == 2 && chdir(argv[1]) == 0 ? opendir(".") : NULL;
  if (folder == NULL) return 2;
  int count = 0;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    if (*entry->d_name == '.') continue;
    FILE *file = fopen(entry->d_name, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) return 2;
    const size_t size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(size ? size : 1); /* of its size, so that a read beyond its end is seen */
    if (bytes == NULL || fread(bytes, 1, size, file) != size) return 2;
    fclose(file);
    fprintf(stderr, "%s\n", entry->d_name); /* the last one named is the one that a sanitizer stops at */
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    count++;
  }
  closedir(folder);
  printf("%d\n", count);
  return 0;
}
