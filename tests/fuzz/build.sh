#!/bin/sh
# Builds the fuzzer of the C plan decoder into FOLDER: `decoder CORPUS...` is libFuzzer's where there is clang, else that
# of mutate.c with gcc's sanitizers, which is called as `decoder SECONDS SEED CORPUS [FOUND]`.
#
#     tests/fuzz/build.sh FOLDER
set -eu
cd "$(dirname "$0")"
runtime=../../src/tilesmith/runtime/csrc
flags="-std=gnu11 -g -O1 -Wall -Wextra -fsanitize=address,undefined -fno-sanitize-recover=all -I$runtime"
if command -v clang >/dev/null; then
  clang $flags -fsanitize=fuzzer -o "$1/decoder" plan_target.c $runtime/*.c -lpthread -ldl
  echo libFuzzer
  exit
fi
for file in plan_target.c mutate.c $runtime/*.c; do
  case $file in */ts_decode.c) watched=-fsanitize-coverage=trace-pc ;; *) watched= ;; esac
  gcc $flags $watched -c "$file" -o "$1/$(basename "$file").o"
done
gcc $flags -o "$1/decoder" "$1"/*.o -lpthread -ldl
echo "gcc's sanitizers"
