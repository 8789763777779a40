//! The same over an OpenStack Swift, by both of the protocols it speaks.

use super::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A Swift of one machine, which ends with the value.
struct Swift {
    child: std::process::Child,
    /// Host and port.
    at: String,
}

impl Swift {
    /// Starts it; `None` where its programs are missing.
    fn start(dir: &Path) -> Option<Swift> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/swift.sh");
        let mut child = Command::new(script)
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        match line.trim().strip_prefix("http://") {
            Some(at) => Some(Swift { at: at.to_string(), child }),
            None => {
                let status = child.wait().unwrap();
                assert_eq!(status.code(), Some(3), "swift.sh failed");
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

impl Drop for Swift {
    fn drop(&mut self) {
        // It ends with its standard input, and takes its servers along.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_swift_by_its_own_protocol_and_by_s3() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(swift) = Swift::start(&scratch.path().join("swift")) else {
        eprintln!(
            "SKIPPED: no real object store in this test: swift's servers or memcached are not installed"
        );
        return;
    };
    let user = [("X-Auth-User", "test:tester"), ("X-Auth-Key", "testing")];
    let answer = swift.ask("GET /auth/v1.0", &user);
    let token = answer.lines().find_map(|line| line.strip_prefix("X-Auth-Token: ")).unwrap();
    for container in ["one", "two"] {
        let made = swift.ask(&format!("PUT /v1/AUTH_test/{container}"), &[("X-Auth-Token", token)]);
        assert!(made.starts_with("HTTP/1.1 20"), "{made}");
    }
    let secrets = |name: &str, text: String| {
        let file = scratch.path().join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        file.to_str().unwrap().to_string()
    };
    let token = secrets("token", format!("token = \"{token}\"\n"));
    let keys = secrets("keys", keys_of("testing"));
    let system = System::with_home();
    let own = format!("http://{}/v1/AUTH_test", swift.at);
    let s3 = format!("http://{}", swift.at);
    let tiers =
        [("own", "swift://one/a/prefix", &own, &token), ("s3", "s3://two/a/prefix", &s3, &keys)];
    for (name, url, endpoint, secrets) in tiers {
        system.ok(&[
            "tier",
            "add",
            name,
            "--url",
            url,
            "--endpoint",
            endpoint,
            "--credentials",
            secrets,
            "--zstd",
        ]);
        let checked = system.json(&["tier", "test", name]);
        assert_eq!((&checked["lists"], &checked["tells_times"]), (&true.into(), &true.into()));
        let home = format!("azk://tank/{name}");
        system.ok(&["cont", "create", "tank", name, "--tier", name]);
        let data = noise(20, 17 * MIB + 3);
        let path = system.path("data");
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
        system.ok(&[
            "tier", "restore", "--from", name, "--pool", "tank", "--cont", name, "--as", &again,
        ]);
        let restored = system.run(&["fs", "cat", &format!("azk://tank/{again}/a file")]);
        assert!(restored.stdout == data, "{name}");
        system.ok(&["fs", "rm", &url]);
        system.ok(&["fs", "tier", "sync", &home]);
        let collected = system.json(&["tier", "gc", &home, "--older-than", "0"]);
        assert_eq!(collected["removed_objects"], 3, "{name}: {collected}");
    }
    // Secrets that are no good: an error that says so.
    let bad = secrets("bad", keys_of("wrong"));
    system.ok(&[
        "tier",
        "add",
        "bad",
        "--url",
        "s3://two/x",
        "--endpoint",
        &s3,
        "--credentials",
        &bad,
    ]);
    let output = system.run(&["tier", "test", "bad"]);
    assert!(
        !output.status.success() && !all_text(&output).contains("wrong"),
        "{}",
        all_text(&output)
    );
}

fn keys_of(secret: &str) -> String {
    format!("access_key_id = \"test:tester\"\nsecret_access_key = \"{secret}\"\n")
}
