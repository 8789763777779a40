#!/usr/bin/env bash
# Installs a program or library without debug information, by a rename: programs that run keep the old one.
# With DEBUG=1 the debug information goes to a directory, named by the file's last name, and the file names it.
# usage: scripts/install-stripped.sh FROM TO DEBUG-DIR
set -euo pipefail

if (($# != 3)); then
    echo "usage: scripts/install-stripped.sh FROM TO DEBUG-DIR" >&2
    exit 2
fi
from=$1 to=$2 debug_dir=$3

install -m 755 "$from" "$to.new"
# What is no ELF file (a script that stands in for it) has nothing to strip.
if [[ $(head -c 4 "$from" | od -An -tx1 | tr -d ' ') == 7f454c46 ]]; then
    strip --strip-unneeded "$to.new"
    if [[ ${DEBUG:-} == 1 ]]; then
        debug=$debug_dir/$(basename "$to").debug
        install -d "$debug_dir"
        objcopy --only-keep-debug "$from" "$debug"
        chmod 644 "$debug"
        objcopy --add-gnu-debuglink="$debug" "$to.new"
    fi
fi
mv -f "$to.new" "$to"
