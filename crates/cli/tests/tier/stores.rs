//! The same over real stores and those that developers use in their place: OpenStack Swift and Ceph by both of the protocols that they speak, and emulators
//! of Azure and GCS, and a WebDAV server, where somebody has installed them.

use super::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A store that a script of this repository has started, which ends with the value.
struct Server {
    child: std::process::Child,
    /// Host and port.
    at: String,
}

impl Server {
    /// Starts it; `None`, and a word, where its programs are missing.
    fn start(script: &str, args: &[&str], dir: &Path) -> Option<Server> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(script);
        let mut child = Command::new(path)
            .args(args)
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        match line.trim().strip_prefix("http://") {
            Some(at) => Some(Server { at: at.to_string(), child }),
            None => {
                let status = child.wait().unwrap();
                assert_eq!(status.code(), Some(3), "{script} failed");
                eprintln!("SKIPPED: no such store in this test: {script} {args:?} lacks a program");
                None
            }
        }
    }

    /// Answer to a request with headers, without a body.
    fn ask(&self, request: &str, headers: &[(&str, &str)]) -> String {
        let mut stream = TcpStream::connect(&self.at).unwrap();
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n{headers}\r\n",
            self.at
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its standard input, and takes its servers along.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A token and the URL of the account, as Swift gives them to a user.
fn enter(server: &Server, path: &str, user: &str) -> (String, String) {
    let user = [("X-Auth-User", user), ("X-Auth-Key", "testing")];
    let answer = server.ask(&format!("GET {path}"), &user);
    let header = |name: &str| {
        let line = answer.lines().find_map(|line| line.split_once(": ").filter(|it| it.0 == name));
        line.unwrap_or_else(|| panic!("{name}: {answer}")).1.trim().to_string()
    };
    (header("X-Auth-Token"), header("X-Storage-Url"))
}

/// Makes containers by Swift's protocol.
fn make(server: &Server, account: &str, token: &str, names: &[&str]) {
    let path = account.trim_start_matches("http://").split_once('/').unwrap().1;
    for name in names {
        let made = server.ask(&format!("PUT /{path}/{name}"), &[("X-Auth-Token", token)]);
        assert!(made.starts_with("HTTP/1.1 20"), "{made}");
    }
}

/// A file with secrets.
fn secrets(dir: &Path, name: &str, text: &str) -> String {
    let file = dir.join(name);
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file.to_str().unwrap().to_string()
}

fn keys_of(user: &str, secret: &str) -> String {
    format!("access_key_id = \"{user}\"\nsecret_access_key = \"{secret}\"\n")
}

/// A tier's whole life in a container of its own, `name`.
fn lives(system: &System, name: &str, url: &str, endpoint: &str, secrets: &str) {
    let add = ["tier", "add", name, "--url", url, "--endpoint", endpoint];
    system.ok(&[&add[..], &["--credentials", secrets, "--part-size", "8MiB"]].concat());
    let checked = system.json(&["tier", "test", name]);
    let can = (&checked["lists"], &checked["tells_times"]);
    assert_eq!(can, (&true.into(), &true.into()), "{name}");
    let home = format!("azk://tank/{name}");
    system.ok(&["cont", "create", "tank", name, "--tier", name]);
    let data = noise(20, 17 * MIB + 3);
    let path = system.path(name);
    std::fs::write(&path, &data).unwrap();
    let url = format!("{home}/a file");
    system.ok(&["fs", "put", path.to_str().unwrap(), &url]);
    system.ok(&["fs", "tier", "sync", &home]);
    system.ok(&["fs", "tier", "evict", &url]);
    assert_eq!(system.json(&["fs", "tier", "status", &url])[0]["state"], "cloud");
    // One that may not write reads ranges.
    assert!(system.run(&["fs", "cat", &url]).stdout == data, "{name}");
    system.ok(&["fs", "tier", "fetch", &url]);
    assert!(system.run(&["fs", "cat", &url]).stdout == data, "{name}");
    let again = format!("{name}-again");
    let restore = ["tier", "restore", "--from", name, "--pool", "tank", "--cont", name];
    system.ok(&[&restore[..], &["--as", &again]].concat());
    let restored = system.run(&["fs", "cat", &format!("azk://tank/{again}/a file")]);
    assert!(restored.stdout == data, "{name}");
    let made = system.json(&["tier", "snapshot", "create", &home]);
    assert_eq!(made["sent_bytes"], 0, "{name}: {made}");
    let listed = system.json(&["tier", "snapshot", "list", &home]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{name}");
    system.ok(&["fs", "rm", &url]);
    system.ok(&["fs", "tier", "sync", &home]);
    // The snapshot has the parts.
    let collected = system.json(&["tier", "gc", &home, "--older-than", "0"]);
    assert_eq!(collected["removed_objects"], 0, "{name}: {collected}");
    system.ok(&["tier", "snapshot", "create", &home, "--keep", "1"]);
    let collected = system.json(&["tier", "gc", &home, "--older-than", "0"]);
    assert_eq!(collected["removed_objects"], 4, "{name}: {collected}");
}

/// Secrets that are no good are an error that does not tell them.
fn refuses(system: &System, url: &str, endpoint: &str, secrets: &str, secret: &str) {
    let add = ["tier", "add", "bad", "--url", url, "--endpoint", endpoint];
    system.ok(&[&add[..], &["--credentials", secrets]].concat());
    let output = system.run(&["tier", "test", "bad"]);
    let text = all_text(&output);
    assert!(!output.status.success() && !text.contains(secret), "{text}");
    system.ok(&["tier", "remove", "bad"]);
}

#[test]
fn a_real_swift_by_its_own_protocol_and_by_s3() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let Some(swift) = Server::start("swift.sh", &[], &dir.join("swift")) else { return };
    let (token, own) = enter(&swift, "/auth/v1.0", "test:tester");
    make(&swift, &own, &token, &["one", "two"]);
    let token = secrets(dir, "token", &format!("token = \"{token}\"\n"));
    let keys = secrets(dir, "keys", &keys_of("test:tester", "testing"));
    let system = System::with_home();
    let s3 = format!("http://{}", swift.at);
    lives(&system, "own", "swift://one/a/prefix", &own, &token);
    lives(&system, "s3", "s3://two/a/prefix", &s3, &keys);
    let bad = secrets(dir, "bad", &keys_of("test:tester", "wrong-one"));
    refuses(&system, "s3://two/x", &s3, &bad, "wrong-one");
}

#[test]
fn a_real_ceph_by_s3_and_by_swift() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let Some(gateway) = Server::start("radosgw.sh", &[], &dir.join("ceph")) else { return };
    let (token, own) = enter(&gateway, "/auth/v1.0", "tester:swift");
    make(&gateway, &own, &token, &["one", "two"]);
    let token = secrets(dir, "token", &format!("token = \"{token}\"\n"));
    let keys = secrets(dir, "keys", &keys_of("tester", "testing"));
    let system = System::with_home();
    let s3 = format!("http://{}", gateway.at);
    lives(&system, "s3", "s3://one/a/prefix", &s3, &keys);
    lives(&system, "swift", "swift://two/a/prefix", &own, &token);
    let bad = secrets(dir, "bad", &keys_of("tester", "wrong-one"));
    refuses(&system, "s3://one/x", &s3, &bad, "wrong-one");
    // A bucket that is not there.
    refuses(&system, "s3://none/x", &s3, &keys, "testing");
}

#[test]
fn azure_as_its_emulator_has_it() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let Some(azurite) = Server::start("store.sh", &["azure"], &dir.join("azure")) else { return };
    let system = System::with_home();
    // The account and key that every Azurite has.
    let key =
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
    let keys = secrets(dir, "keys", &keys_of("devstoreaccount1", key));
    let endpoint = format!("http://{}/devstoreaccount1", azurite.at);
    lives(&system, "azure", "azblob://one/a/prefix", &endpoint, &keys);
    let wrong = key.replace("Eby8", "AAAA");
    let bad = secrets(dir, "bad", &keys_of("devstoreaccount1", &wrong));
    refuses(&system, "azblob://one/x", &endpoint, &bad, &wrong);
}

#[test]
fn gcs_as_an_emulator_has_it() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let Some(gcs) = Server::start("store.sh", &["gcs"], &dir.join("gcs")) else { return };
    let system = System::with_home();
    let token = secrets(dir, "token", "token = \"any\"\n");
    let endpoint = format!("http://{}", gcs.at);
    lives(&system, "gcs", "gcs://one/a/prefix", &endpoint, &token);
    refuses(&system, "gcs://none/x", &endpoint, &token, "any-");
}

#[test]
fn a_webdav_server() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let Some(webdav) = Server::start("store.sh", &["webdav"], &dir.join("webdav")) else { return };
    let system = System::with_home();
    let keys = secrets(dir, "keys", &keys_of("tester", "testing"));
    let endpoint = format!("http://{}", webdav.at);
    lives(&system, "webdav", "webdav://any/a/prefix", &endpoint, &keys);
    let bad = secrets(dir, "bad", &keys_of("tester", "wrong-one"));
    refuses(&system, "webdav://any/x", &endpoint, &bad, "wrong-one");
}
