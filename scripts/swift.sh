#!/usr/bin/env bash
# swift.sh DIR: an OpenStack Swift of one machine below DIR (proxy, account, container, object server, one disk, one copy), for
# tests. Says where it answers, then serves until its standard input ends. User 'test:tester' has key 'testing'; S3 and Swift are both
# spoken. Nothing of it is safe or secret. Exit code 3: a program is missing.
set -euo pipefail

dir=$1
for program in swift-proxy-server swift-account-server swift-container-server swift-object-server swift-ring-builder memcached; do
    command -v "$program" >/dev/null || {
        echo "swift.sh: there is no $program" >&2
        exit 3
    }
done

mkdir -p "$dir/disks/d1" "$dir/run"
cd "$dir"
read -r proxy account container object cache < <(python3 - <<'PYTHON'
import socket
taken = [socket.socket() for _ in range(5)]
for one in taken:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in taken))
PYTHON
)
user=$(id -un)
cat >swift.conf <<CONF
[swift-hash]
swift_hash_path_suffix = test
[storage-policy:0]
name = one
default = yes
CONF
for kind in account container object; do
    cat >$kind.conf <<CONF
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = ${!kind}
swift_dir = $PWD
devices = $PWD/disks
mount_check = false
user = $user
workers = 0
fallocate_reserve = 0
log_address = $PWD/none
[pipeline:main]
pipeline = $kind-server
[app:$kind-server]
use = egg:swift#$kind
CONF
    {
        swift-ring-builder $kind.builder create 2 1 1
        swift-ring-builder $kind.builder add "r1z1-127.0.0.1:${!kind}/d1" 1
        swift-ring-builder $kind.builder rebalance
    } >rings.log
done
cat >proxy.conf <<CONF
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = $proxy
swift_dir = $PWD
user = $user
workers = 0
log_address = $PWD/none
[pipeline:main]
pipeline = catch_errors cache s3api tempauth proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:$cache
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
CONF

servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true' EXIT
memcached -l 127.0.0.1 -p "$cache" -u "$user" >cache.log 2>&1 </dev/null &
servers+=($!)
for kind in account container object proxy; do
    "swift-$kind-server" "$PWD/$kind.conf" >$kind.log 2>&1 </dev/null &
    servers+=($!)
done
for port in $cache $account $container $object $proxy; do
    until (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null; do
        kill -0 "${servers[@]}" 2>/dev/null || {
            tail -n 5 ./*.log >&2
            exit 1
        }
        sleep 0.1
    done
done
echo "http://127.0.0.1:$proxy"
cat >/dev/null
