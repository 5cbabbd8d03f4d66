#!/bin/sh
# Builds the C plan decoder with sanitizers into FOLDER: with `clang`, its fuzzer (`decoder [libFuzzer's options] CORPUS`);
# else what replays a folder of inputs (`decoder CORPUS`).
#
#     tests/fuzz/build.sh FOLDER [clang]
set -eu
cd "$(dirname "$0")"
runtime=../../src/tilesmith/runtime/csrc
flags="-std=gnu11 -g -O1 -Wall -Wextra -fsanitize=address,undefined -fno-sanitize-recover=all -I$runtime"
if [ "${2:-}" = clang ]; then
  exec clang $flags -fsanitize=fuzzer -o "$1/decoder" plan_target.c $runtime/*.c -lpthread -ldl
fi
exec cc $flags -o "$1/decoder" plan_target.c replay.c $runtime/*.c -lpthread -ldl
