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

# Tests of the catalog in etcd are skipped without it: it is installed where that needs nobody's password
# and the tests run, and nothing fails where it cannot be had.
if [[ -n "${CI:-}" ]] && ((EUID == 0)) && ! command -v etcd >/dev/null && command -v apt-get >/dev/null; then
    echo "need.sh: installing etcd-server"
    # Its package would start a server of its own.
    { { apt-cache show etcd-server >/dev/null 2>&1 || apt-get update -qq; } &&
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends etcd-server; } </dev/null ||
        echo "need.sh: etcd-server cannot be had; its tests will be skipped" >&2
fi

# So are tests of the erasure codes by Intel's ISA-L, which our own code is compared with.
if [[ -n "${CI:-}" ]] && ((EUID == 0)) && ! ldconfig -p | grep 'libisal\.so\.2' >/dev/null && command -v apt-get >/dev/null; then
    echo "need.sh: installing libisal2"
    { { apt-cache show libisal2 >/dev/null 2>&1 || apt-get update -qq; } &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libisal2; } </dev/null ||
        echo "need.sh: libisal2 cannot be had; its tests will be skipped" >&2
fi

# And those of the cold tier against object stores: Swift, Ceph's gateway with what it needs, and a WebDAV server; about 50 s of two cores. Emulators of Azure and GCS
# (scripts/store.sh) take longer: their tests are skipped without them.
if [[ -n "${CI:-}" ]] && ((EUID == 0)) && command -v apt-get >/dev/null; then
    stores=()
    command -v swift-proxy-server >/dev/null || stores+=(swift-proxy swift-account swift-container swift-object memcached)
    command -v radosgw >/dev/null || stores+=(radosgw ceph-mon ceph-osd)
    command -v rclone >/dev/null || stores+=(rclone)
    if ((${#stores[@]} > 0)); then
        echo "need.sh: installing ${stores[*]}"
        # No servers of their packages: the tests start their own (scripts/swift.sh, radosgw.sh, store.sh). Nor does anybody need them after a power cut.
        { { apt-cache show swift-proxy >/dev/null 2>&1 || apt-get update -qq; } &&
            RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive timeout 120 apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-unsafe-io "${stores[@]}"; } </dev/null ||
            echo "need.sh: ${stores[*]} cannot be had; their tests will be skipped" >&2
    fi
fi

if ! command -v cargo >/dev/null; then
    echo "need.sh: cargo is missing; install Rust 1.90 or newer: https://rustup.rs" >&2
    exit 1
fi
