#!/usr/bin/env bash
# Checks that the tools a build needs are there; installs missing Debian or Ubuntu packages.
# Does nothing, and needs no root, when all are there.
set -euo pipefail

# Pairs of a command and the package that has it.
needs=(cc:gcc c++:g++ make:make git:git)

missing=()
for need in "${needs[@]}"; do
    command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}")
done
# The C headers use uuid_t; the tests compile programs with them.
if ! echo '#include <uuid/uuid.h>' | cc -E - >/dev/null 2>&1; then
    missing+=(uuid-dev)
fi

if ((${#missing[@]} > 0)); then
    if ! command -v apt-get >/dev/null; then
        echo "need.sh: please install: ${missing[*]}" >&2
        exit 1
    fi
    as_root=()
    if ((EUID != 0)); then
        as_root=(sudo)
    fi
    echo "need.sh: installing ${missing[*]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null
fi

if ! command -v cargo >/dev/null; then
    echo "need.sh: cargo is missing; install Rust 1.90 or newer: https://rustup.rs" >&2
    exit 1
fi
