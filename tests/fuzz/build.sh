#!/bin/sh
# Builds each `NAME_target.c` with the C runtime and sanitizers into FOLDER: with `clang`, its fuzzer
# (`NAME [libFuzzer's options] CORPUS`); else what replays a folder of inputs (`NAME CORPUS`). FUZZ_OPTIMISE is the
# level of optimisation.
#
#     tests/fuzz/build.sh FOLDER [clang]
set -eu
cd "$(dirname "$0")"
folder=$1
runtime=../../src/tilesmith/runtime/csrc
cc=cc engine= link=replay.c
if [ "${2:-}" = clang ]; then
  cc=clang engine=-fsanitize=fuzzer-no-link link=-fsanitize=fuzzer
fi
flags="-std=gnu11 -g -O${FUZZ_OPTIMISE:-1} -Wall -Wextra -fsanitize=address,undefined -fno-sanitize-recover=all -I$runtime"
for file in "$runtime"/*.c; do
  $cc $flags $engine -c "$file" -o "$folder/$(basename "$file" .c).o"
done
for target in *_target.c; do
  $cc $flags -o "$folder/${target%_target.c}" "$target" $link "$folder"/ts_*.o -lpthread -ldl
done
