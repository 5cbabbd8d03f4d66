#!/bin/sh
# Builds the C readers with sanitizers into FOLDER: with `clang`, their fuzzers (`plan [libFuzzer's options] CORPUS`, and
# `package`); else what replays a folder of inputs (`plan CORPUS`, `package CORPUS`).
#
#     tests/fuzz/build.sh FOLDER [clang]
set -eu
cd "$(dirname "$0")"
runtime=../../src/tilesmith/runtime/csrc
flags="-std=gnu11 -g -O1 -Wall -Wextra -fsanitize=address,undefined -fno-sanitize-recover=all -I$runtime"
for name in plan package; do
  if [ "${2:-}" = clang ]; then
    clang $flags -fsanitize=fuzzer -o "$1/$name" ${name}_target.c $runtime/*.c -lpthread -ldl
  else
    cc $flags -o "$1/$name" ${name}_target.c replay.c $runtime/*.c -lpthread -ldl
  fi
done
