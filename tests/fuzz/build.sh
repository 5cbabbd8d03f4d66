#!/bin/sh
# Builds each `NAME_target.c` with the C runtime and sanitizers into FOLDER: with `clang`, its fuzzer
# (`NAME [libFuzzer's options] CORPUS`); else what replays a folder of inputs (`NAME CORPUS`). FUZZ_OPTIMISE is the
# level of optimisation.
#
#     tests/fuzz/build.sh FOLDER [clang]
set -eu
ln -sfn "$(cd "$(dirname "$0")/../.." && pwd)" "$1/root" # a name without blanks
cd "$1"
here=root/tests/fuzz
runtime=root/src/tilesmith/runtime/csrc
cc=cc engine= link=$here/replay.c
if [ "${2:-}" = clang ]; then
  cc=clang engine=-fsanitize=fuzzer-no-link link=-fsanitize=fuzzer
fi
flags="-std=gnu11 -g1 -Wall -Wextra -fsanitize=address,undefined -fno-sanitize-recover=all -I$runtime"
level=-O${FUZZ_OPTIMISE:-1}
# Plans, packages and descriptions know nothing of libraries, machines and the reference; digests are most of the work.
files=$(ls $runtime/ts_*.c | grep -v -E '/ts_(library|machine|reference|sha256|target|withdrawn)[^/]*$')
$cc $flags $level $engine -c $files
$cc $flags -O2 $engine -c $runtime/ts_sha256.c
for target in $here/*_target.c; do
  $cc $flags $level -o "$(basename $target _target.c)" $target $link ts_*.o -lpthread -ldl
done
