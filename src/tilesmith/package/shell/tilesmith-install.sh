#!/bin/sh
# Installs Tilesmith's kernel packages on a machine without Python. Needs ts-query, and curl for URLs.
#
#   tilesmith-install.sh [OPTION]... PATH|URL...
#   tilesmith-install.sh [OPTION]... --auto INDEX     what an index (a folder or URL) has for this machine
#
#   --nearest          take the nearest package if none is for exactly this machine
#   --name NAME        with --auto, packages of this name alone
#   --target TARGET    in place of this machine; may be given again
#   --keys FILE|DIR    trusted keys (default: those of `tilesmith package trust`, and TILESMITH_TRUSTED_KEYS)
#   --allow-unsigned   take packages without a signature from URLs
#   --downgrade        let an older version replace a newer one
#   --replace          let another content replace that of the same version
#   -o, --out DIR      the folder of installed packages (default: the first one of TILESMITH_PACKAGE_PATH)
#   --timeout SECONDS  of each download (3600)
#   --query FILE       the program ts-query (default: beside this script, or in PATH)
#
# Exit status: 0; 1 if no package is for this machine; 2 if something was refused or failed. The folder then has what
# it had: a package is verified before it takes the place of another one, in one step.
set -euf
LC_ALL=C
export LC_ALL

MOST_INDEX=1048576 MOST_PACKAGE=1073741824
auto= nearest= name= targets= keys= unsigned= downgrade= replace= out= timeout=3600 query= work= status=0

complain() { printf 'tilesmith-install: %s\n' "$*" >&2; }
die() { complain "$@"; exit 2; }
clean() { [ -z "$work" ] || rm -rf "$work"; }
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

usage() { sed -n '2,/^# Exit/s/^# \{0,1\}//p' "$0" | sed '$d'; }
value() { [ "$#" -ge 2 ] || die "$1 needs a value"; }

is_remote() { case $1 in http://*|https://*) return 0 ;; esac; return 1; }

# The path that a place of this machine names.
local_path() {
  case $1 in
    file:///*) printf '%s\n' "${1#file://}" ;;
    *://*) die "$1: known are http, https and file; s3 and gs need Python" ;;
    *) printf '%s\n' "$1" ;;
  esac
}

# Whether the decimal number $1 is greater than $2; shells count to 2^63 only.
is_greater() {
  [ "${#1}" -ne "${#2}" ] || { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort | tail -n 1)" = "$1" ]; return; }
  [ "${#1}" -gt "${#2}" ]
}

# fetch URL FILE BYTES: go on with what FILE has.
fetch() {
  redirect='=http,https'
  case $1 in https://*) redirect='=https' ;; esac
  tries=4
  while :; do
    failed=0
    (
      ulimit -f $(($3 / 512 + 1)) # a server that does not say how much it sends
      exec curl --fail --silent --show-error --location --globoff --max-redirs 5 --proto '=http,https' \
        --proto-redir "$redirect" --connect-timeout 10 --speed-limit 1 --speed-time 30 --max-time "$timeout" \
        --max-filesize "$3" --continue-at - --output "$2" "$1" 2>"$work/said"
    ) || failed=$?
    tries=$((tries - 1))
    case $failed in
      0) return 0 ;;
      18 | 28 | 52 | 55 | 56) ;; # broke off: go on
      22 | 33 | 36)              # no such range: all of it is here, or it begins anew
        ! "$query" check "$2" >/dev/null 2>&1 || return 0
        [ -s "$2" ] || tries=0
        rm -f "$2"
        ;;
      63 | 1[0-9][0-9]) # it sends too much
        rm -f "$2"
        tries=0
        ;;
      *) tries=0 ;;
    esac
    if [ "$tries" -le 0 ]; then
      cat "$work/said" >&2
      return 1
    fi
    sleep 1
  done
}

# lock DESCRIPTOR FILE: take a lock, of packages the one that the Python command takes; where there is no flock, none.
lock() {
  mkdir -p -m 700 "$(dirname "$2")"
  command -v flock >/dev/null || return 0
  while :; do
    eval "exec $1>>\"\$2\""
    flock -w 60 "$1" || die "$2: another process has held this lock for 60 s; try again later"
    [ ! -e "/dev/fd/$1" ] || [ "$2" -ef "/dev/fd/$1" ] && return 0
  done
}
# The file goes before the lock: who waits for it sees that it is gone, and takes the next one.
unlock() {
  rm -f "$2"
  eval "exec $1>&-"
}

# with_keys COMMAND FILE: what ts-query says of a file and who signed it, by the trusted keys.
with_keys() {
  # shellcheck disable=SC2086 # one word for each file of keys
  (IFS='
'; exec "$query" "$1" "$2" "$work/keys" $keys)
}

# put FILE PLACE: install a package that lies in FILE, by renaming it if it lies in the folder. PLACE is for messages.
# Sets `action`. 3: the file is damaged or another one than the index names.
put() {
  facts=$(with_keys check "$1") || return 3
  # shellcheck disable=SC2086
  set -- "$1" "$2" $facts
  [ "$#" -eq 11 ] || { complain "$2: its header has names with spaces"; return 2; }
  file=$1 place=$2 target=$3 title=$4 counter=$5 digest=$6 size=$7 identity=$8 key=$9
  shift 10
  signer=$1
  case $title$target in */*) complain "$place: its header has names with '/'"; return 2 ;; esac
  if [ -n "$expected" ] && [ "$expected" != "$target $title $counter $digest $size" ]; then
    complain "$place: is not the package that the index names"
    return 3
  fi
  if [ "$signer" = - ] && is_remote "$place" && [ -z "$unsigned" ]; then
    complain "$place: is not signed, and comes from a URL; --allow-unsigned installs it all the same"
    return 2
  fi
  if [ -z "$expected" ]; then
    printf 'tilesmith packages 1\n%s x.kdb\nend 1\n' "$target $title $counter $digest $size" >"$work/one"
    pick "$work/one" >"$work/picked" || {
      complain "$place: is for $target; --target $target installs it for another machine"
      return 2
    }
    suits=$(head -n 1 "$work/picked") suits=${suits%% *}
  fi
  final=$out/$title-$(printf '%s' "$target" | tr : -).kdb
  held=$out/locks/$(basename "$final").lock
  lock 9 "$held"
  done=0
  put_locked || done=$?
  unlock 9 "$held"
  return "$done"
}

put_locked() {
  action=installed
  if [ -e "$final" ]; then
    action=replaced # a damaged one
    if before=$("$query" check "$final" 2>/dev/null); then
      # shellcheck disable=SC2086
      set -- $before
      if [ "$4" = "$digest" ]; then
        action=unchanged
      elif [ "$1 $2" != "$target $title" ]; then
        [ -n "$replace" ] || { complain "$final: is the package $2 for $1; --replace puts $place there"; return 2; }
      elif is_greater "$counter" "$3"; then
        action=updated
      elif is_greater "$3" "$counter"; then
        action=downgraded
        [ -n "$downgrade" ] || {
          complain "$place: has the counter $counter, and $3 is installed, which is newer; --downgrade installs the older one"
          return 2
        }
      elif [ "$6" = "$identity" ]; then
        [ "$key" != - ] || [ "$7" = - ] || action=unchanged # a signature is not taken away
      elif [ -z "$replace" ]; then
        complain "$place: has the counter $counter of the package that is installed, and another content; --replace installs it"
        return 2
      fi
    fi
  fi
  if [ "$action" != unchanged ]; then
    chmod 644 "$file" && { sync "$file" 2>/dev/null || sync; } && mv -f "$file" "$final" || {
      complain "$final: cannot be written"
      return 2
    }
  fi
  if [ "$suits" = nearest ]; then # calls may use it, although it is for another machine
    consent=$out/partial/$(basename "$final").nearest
    printf 'tilesmith nearest 1\n%s %s\n' "$(basename "$final")" "$identity" >"$consent" && chmod 644 "$consent" &&
      mv -f "$consent" "$final.nearest" || {
      complain "$final.nearest: cannot be written"
      return 2
    }
  fi
  signed="signed by $signer"
  [ "$signer" != - ] || signed="not signed"
  [ "$suits" != nearest ] || signed="$signed (for $target, the nearest)"
  printf '%s: %s, %s %s, %s\n' "$final" "$action" "$title" "$counter" "$signed"
}

# install PLACE: fetched, or copied, into the folder of what is not finished; then verified and renamed.
install() {
  mkdir -p "$out"
  mkdir -p -m 700 "$out/partial"
  part=$out/partial/$(printf '%s' "$1" | cksum | tr ' ' -).sh
  command -v flock >/dev/null || part=$part.$$
  for attempt in 1 2; do
    result=0
    if is_remote "$1"; then
      lock 8 "$part.lock"
      had=
      [ ! -s "$part" ] || had=yes
      fetch "$1" "$part" "$most" || {
        unlock 8 "$part.lock"
        [ -s "$part" ] || rm -f "$part"
        complain "$1: cannot be fetched"
        return 2
      }
    else
      path=$(local_path "$1") || return 2
      part=$(mktemp "$out/partial/XXXXXXXX.sh") had=
      cp "$path" "$part" || result=2
    fi
    [ "$result" -ne 0 ] || put "$part" "$1" || result=$?
    rm -f "$part"
    unlock 8 "$part.lock"
    # Parts of two contents do not belong together: fetch all of it, once.
    [ "$result" -eq 3 ] && [ -n "$had" ] && [ "$attempt" -eq 1 ] || break
  done
  [ "$result" -eq 0 ] || return 2
}

# pick INDEX: the lines for this machine, or for the targets that were named.
pick() {
  set -- pick "$1"
  [ -z "$nearest" ] || set -- "$@" --nearest
  [ -z "$name" ] || set -- "$@" --name "$name"
  for each in $targets; do set -- "$@" --target "$each"; done
  "$query" "$@"
}

install_picked() {
  case ${auto%%\?*} in
    *.txt) base=${auto%%\?*} base=${base%/*} ;;
    *) base=${auto%%\?*} base=${base%/} ;;
  esac
  more=
  if is_remote "$auto"; then case $auto in *\?*) more="?${auto#*\?}" ;; esac; fi
  case $auto in *.txt | *.txt\?*) place=$auto ;; *) place=$base/tilesmith-packages.txt$more ;; esac
  if is_remote "$place"; then
    fetch "$place" "$work/index" "$MOST_INDEX" || die "$place: cannot be fetched"
  else
    path=$(local_path "$place") && cp "$path" "$work/index" || die "$place: cannot be read"
    case $base in file://* | /* | ./* | ../*) ;; *) base=./$base ;; esac
    case $auto in *.txt) case $auto in */*) ;; *) base=. ;; esac ;; esac
  fi
  # Without a signature it is taken: each package has its own.
  with_keys signer "$work/index" >"$work/signer" || die "$place: its signature is refused"
  found=0
  pick "$work/index" >"$work/lines" || found=$?
  [ "$found" -lt 2 ] || die "$place: cannot be used"
  [ "$found" -eq 0 ] || exit 1
  while read -r suits _ target title counter digest size each; do
    expected="$target $title $counter $digest $size" most=$size
    install "$base/$each$more" </dev/null || status=2
  done <"$work/lines"
}

while [ "$#" -gt 0 ]; do
  case $1 in
    --auto) value "$@"; auto=$2; shift ;;
    --nearest) nearest=yes ;;
    --name) value "$@"; name=$2; shift ;;
    --target) value "$@"; targets="$targets $2"; shift ;;
    --keys) value "$@"; keys="$keys$2
"; shift ;;
    --allow-unsigned) unsigned=yes ;;
    --downgrade) downgrade=yes ;;
    --replace) replace=yes ;;
    -o | --out) value "$@"; out=$2; shift ;;
    --timeout) value "$@"; timeout=$2; shift ;;
    --query) value "$@"; query=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    -*) die "$1 is no option; --help lists them" ;;
    *) break ;;
  esac
  shift
done
[ -z "$auto" ] || [ "$#" -eq 0 ] || die "say what to install: paths or URLs of packages, or --auto INDEX"
[ -n "$auto" ] || [ "$#" -gt 0 ] || { usage >&2; exit 2; }

if [ -z "$query" ]; then
  here=$(dirname "$0")
  for query in "$here/ts-query" "$here/ts-query-$(uname -m)" "$(command -v ts-query || :)"; do
    [ ! -x "$query" ] || break
  done
fi
[ -x "$query" ] || die "the program ts-query is missing: put it beside this script, or name it with --query"

if [ -z "$out" ]; then
  # The first folder of the list; a .kdb file is none.
  rest=${TILESMITH_PACKAGE_PATH:-${XDG_DATA_HOME:-${HOME:?is not set; name a folder with --out}/.local/share}/tilesmith/packages}:
  while [ -z "$out" ] && [ -n "$rest" ]; do
    out=${rest%%:*} rest=${rest#*:}
    case $out in *.kdb) [ -d "$out" ] || out= ;; esac
  done
  [ -n "$out" ] || die "TILESMITH_PACKAGE_PATH has files alone: name a folder with --out"
fi

if [ -z "$keys" ]; then
  keys=$(printf '%s\n' "${XDG_CONFIG_HOME:-${HOME:-}/.config}/tilesmith/trusted"
    printf '%s\n' "${TILESMITH_TRUSTED_KEYS:-}" | tr : '\n')
fi
work=$(mktemp -d)
: >"$work/keys" # no key at all is a list, too
keys=$(printf '%s\n' "$keys" | while IFS= read -r each; do
  if [ -d "$each" ]; then
    set +f
    for file in "$each"/*.pub; do [ ! -f "$file" ] || printf '%s\n' "$file"; done
    set -f
  elif [ -f "$each" ]; then
    printf '%s\n' "$each"
  fi
done)

if [ -n "$auto" ]; then
  install_picked
else
  for each in "$@"; do
    expected= suits=exact most=$MOST_PACKAGE
    install "$each" || status=2
  done
fi
exit "$status"
