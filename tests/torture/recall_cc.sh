#!/bin/sh
# A C compiler that remembers: what it has compiled once it copies. RECALL_DIR holds what it remembers.
case "$*" in *--version*) exec cc --version ;; esac
for source; do :; done
while [ "$1" != -o ]; do flags="$flags $1"; shift; done
kept="$RECALL_DIR/$({ echo "$flags"; cat "$source"; } | sha256sum | cut -c1-64)"
[ -f "$kept" ] || { cc $flags -o "$kept.$$" "$source" && mv "$kept.$$" "$kept"; } || exit 1
exec cp "$kept" "$2"
