#!/usr/bin/env bash
# radosgw.sh DIR: a Ceph of one machine below DIR (a monitor, a storage daemon that keeps its data in memory, and radosgw, which speaks S3), for
# tests. Says where it answers, then serves until its standard input ends. S3 and Swift are both spoken: access key 'tester' has secret key
# 'testing', user 'tester:swift' has key 'testing'. Nothing of it is safe or secret. Exit code 3: a program is missing.
set -euo pipefail

dir=$1
for program in ceph-mon ceph-osd radosgw radosgw-admin monmaptool ceph; do
    command -v "$program" >/dev/null || {
        echo "radosgw.sh: there is no $program" >&2
        exit 3
    }
done

mkdir -p "$dir/mon" "$dir/osd" "$dir/gateway"
cd "$dir"
read -r monitor gateway < <(python3 - <<'PYTHON'
import socket
taken = [socket.socket() for _ in range(2)]
for one in taken:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in taken))
PYTHON
)
fsid=$(cat /proc/sys/kernel/random/uuid)
cat >ceph.conf <<CONF
[global]
fsid = $fsid
mon host = v2:127.0.0.1:$monitor
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = $PWD/keyring
run dir = $PWD
log file = $PWD/\$name.log
admin socket = $PWD/\$name.asok
pid file = $PWD/\$name.pid
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
mon allow pool size one = true
[mon]
paxos propose interval = 0.02
paxos min wait = 0.01
mon data = $PWD/mon
mon max pg per osd = 1000
mon data avail crit = 1
[osd]
osd data = $PWD/osd
osd objectstore = memstore
memstore device bytes = 4294967296
osd crush chooseleaf type = 0
osd memory target = 1073741824
[client.gateway]
rgw data = $PWD/gateway
# Without tcp_nodelay small answers wait 40 ms for an acknowledgement.
rgw frontends = beast endpoint=127.0.0.1:$gateway tcp_nodelay=1
rgw thread pool size = 32
rgw enable usage log = false
rgw enable ops log = false
rgw lifecycle work time = 00:00-00:01
CONF
export CEPH_CONF=$PWD/ceph.conf CEPH_ARGS=

monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$monitor]" monmap >mkfs.log
{
    ceph-authtool --create-keyring keyring --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
    ceph-authtool keyring --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *'
    ceph-authtool keyring --gen-key -n client.gateway --cap mon 'allow *' --cap osd 'allow *'
    # The monitor takes all of these keys over.
    ceph-mon --mkfs -i a --monmap monmap --keyring keyring
} >>mkfs.log 2>&1
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true' EXIT
ceph-mon -f -i a >mon.log 2>&1 </dev/null &
servers+=($!)
uuid=$(cat /proc/sys/kernel/random/uuid)
{
    ceph osd new "$uuid"
    ceph-osd --mkfs -i 0 --osd-uuid "$uuid"
} >>mkfs.log 2>&1
ceph-osd -f -i 0 >osd.log 2>&1 </dev/null &
servers+=($!)
radosgw -f -n client.gateway >gateway.log 2>&1 </dev/null &
servers+=($!)
until (: </dev/tcp/127.0.0.1/"$gateway") 2>/dev/null; do
    kill -0 "${servers[@]}" 2>/dev/null || {
        tail -n 5 ./*.log >&2
        exit 1
    }
    sleep 0.1
done
{
    radosgw-admin -n client.gateway user create --uid tester --display-name tester --access-key tester --secret-key testing
    radosgw-admin -n client.gateway subuser create --uid tester --subuser tester:swift --access full --secret testing --key-type swift
} >user.log 2>&1
echo "http://127.0.0.1:$gateway"
cat >/dev/null
