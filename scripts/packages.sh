#!/usr/bin/env bash
# Makes a Debian package, and an RPM where rpmbuild is there, of what install.sh installs, with a systemd unit,
# its user and an example configuration.
# usage: scripts/packages.sh PATH-OF-AZEKURA OUTPUT-DIR
set -euo pipefail

if (($# != 2)) || [[ -z $2 ]]; then
    echo "usage: scripts/packages.sh PATH-OF-AZEKURA OUTPUT-DIR" >&2
    exit 2
fi
bin=$1
root=$(cd "$(dirname "$0")/.." && pwd)
install -d "$2"
out=$(cd "$2" && pwd)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -1)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
"$root/scripts/install.sh" "$bin" "$tree/usr" >/dev/null
install -D -m 644 "$root/packaging/azekura-engine.service" "$tree/usr/lib/systemd/system/azekura-engine.service"
install -D -m 644 "$root/packaging/sysusers.conf" "$tree/usr/lib/sysusers.d/azekura.conf"
install -D -m 644 "$root/packaging/engine.toml" "$tree/etc/azekura/engine.toml"
install -d "$tree/usr/sbin"
ln -s ../bin/azekura "$tree/usr/sbin/mount.fuse.azekura"
find "$tree" -type d -exec chmod 755 {} +
find "$tree" -name '*.1' -exec gzip -9n {} +

made=0
if command -v dpkg-deb >/dev/null; then
    deb=$work/deb
    cp -a "$tree" "$deb"
    # Debian links in /usr/lib; /usr/lib64 belongs to the C library.
    rm -rf "$deb/usr/lib64"
    install -d "$deb/DEBIAN"
    # The C library that the programs were linked with, or a newer one.
    glibc=$(find "$tree" -type f \( -path '*/bin/*' -o -name '*.so*' \) -exec objdump -T {} + 2>/dev/null |
        sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -1 || :)
    cat >"$deb/DEBIAN/control" <<CONTROL
Package: azekura
Version: $version-1
Architecture: $(dpkg --print-architecture)
Maintainer: The Azekura authors <azekura@localhost>
Installed-Size: $(du -sk "$tree" | cut -f1)
Depends: libc6${glibc:+ (>= $glibc)}, libgcc-s1
Recommends: fuse3
Section: admin
Priority: optional
Description: scale-out object store and parallel file system
 An object store with the data model of DAOS and a parallel file system: pools,
 containers, objects, a POSIX namespace without a metadata server; library,
 mount and preload library.
CONTROL
    echo /etc/azekura/engine.toml >"$deb/DEBIAN/conffiles"
    install -m 755 "$root/packaging/postinst" "$deb/DEBIAN/postinst"
    dpkg-deb --build --root-owner-group "$deb" "$out" >/dev/null
    ((made += 1))
fi
if command -v rpmbuild >/dev/null; then
    # Directories of the system belong to other packages.
    (cd "$tree" && find . \( -type f -o -type l \) ! -path ./etc/azekura/engine.toml -printf '/%P\n') >"$work/files"
    rpmbuild --quiet -bb "$root/packaging/azekura.spec" \
        --define "_topdir $work/rpm" --define "_rpmdir $out" --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
        --define "azekura_version $version" --define "azekura_tree $tree" --define "azekura_files $work/files"
    ((made += 1))
fi
if ((made == 0)); then
    echo "packages.sh: neither dpkg-deb nor rpmbuild is there" >&2
    exit 1
fi
ls -1sh "$out"/*.deb "$out"/*.rpm 2>/dev/null || true
