#!/usr/bin/env bash
# store.sh azure|gcs|webdav DIR: a store of that kind with its data below DIR, for tests: Azurite (npm: azurite), an emulator of GCS (Go:
# github.com/fsouza/fake-gcs-server), rclone's WebDAV server. It has a container or bucket 'one'. Says where it answers, then serves until
# its standard input ends. Exit code 3: the program is missing.
set -euo pipefail

kind=$1 dir=$2
case $kind in
azure) program=azurite-blob ;;
gcs) program=fake-gcs-server ;;
webdav) program=rclone ;;
*)
    echo "store.sh: no such kind: $kind" >&2
    exit 2
    ;;
esac
command -v "$program" >/dev/null || {
    echo "store.sh: there is no $program" >&2
    exit 3
}

mkdir -p "$dir"
cd "$dir"
port=$(python3 - <<'PYTHON'
import socket
one = socket.socket()
one.bind(("127.0.0.1", 0))
print(one.getsockname()[1])
PYTHON
)
case $kind in
azure) command=(azurite-blob --silent --disableTelemetry --skipApiVersionCheck --blobHost 127.0.0.1 --blobPort "$port" --location "$PWD/data") ;;
gcs) command=(fake-gcs-server -scheme http -host 127.0.0.1 -port "$port" -public-host "127.0.0.1:$port" -backend memory) ;;
webdav)
    mkdir -p data
    command=(rclone --config /dev/null serve webdav data --addr "127.0.0.1:$port" --user tester --pass testing)
    ;;
esac
"${command[@]}" >server.log 2>&1 </dev/null &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
until (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null; do
    kill -0 "$server" 2>/dev/null || {
        tail -n 5 server.log >&2
        exit 1
    }
    sleep 0.1
done
if [[ $kind == azure ]]; then
    # The account and key that every Azurite has.
    python3 - "$port" <<'PYTHON'
import base64, email.utils, hashlib, hmac, sys, urllib.request
account = "devstoreaccount1"
key = base64.b64decode("Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==")
headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
to_sign = "PUT" + "\n" * 12 + named + f"/{account}/{account}/one\nrestype:container"
signature = base64.b64encode(hmac.new(key, to_sign.encode(), hashlib.sha256).digest()).decode()
headers["Authorization"] = f"SharedKey {account}:{signature}"
url = f"http://127.0.0.1:{sys.argv[1]}/{account}/one?restype=container"
urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers))
PYTHON
fi
if [[ $kind == gcs ]]; then
    python3 - "$port" <<'PYTHON'
import sys, urllib.request
url = f"http://127.0.0.1:{sys.argv[1]}/storage/v1/b?project=test"
json = {"Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(url, data=b'{"name": "one"}', headers=json)).read()
PYTHON
fi
echo "http://127.0.0.1:$port"
cat >/dev/null
