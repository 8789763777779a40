//! Configuration files: what is generated is right, what is wrong is named.

use crate::harness::{self, System};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

const HOSTS: [&str; 4] = ["127.0.0.1", "127.0.0.2", "localhost", "::1"];

#[test]
fn what_is_generated_passes_the_check() {
    let scratch = System::none();
    for (name, etcd) in [("joined", &[][..]), ("etcd", &["--etcd"][..])] {
        let out = scratch.path(name);
        let out = out.to_str().unwrap();
        let (token, admin) = (format!("{out}/token"), format!("{out}/admin-token"));
        let hosts = HOSTS.join(",");
        let mut args = vec!["config", "generate", "--hosts", &hosts, "--out", out];
        args.extend(["--token-file", &token, "--admin-token-file", &admin]);
        args.extend(["--device", "/a \"b\"", "--device", "/c"]);
        args.extend(etcd);
        let told = scratch.ok(&args);
        assert!(
            told.contains("tcp://127.0.0.1:7710,127.0.0.2:7710,localhost:7710,[::1]:7710"),
            "{told}"
        );
        for host in HOSTS {
            let file = format!("{out}/{host}/engine.toml");
            scratch.ok(&["config", "check", &file]);
            assert!(fs::read_to_string(format!("{out}/{host}/azekura-engine.service")).is_ok());
            let text = fs::read_to_string(&file).unwrap();
            assert_eq!(text.contains("\njoin = "), etcd.is_empty() && host != HOSTS[0], "{text}");
            assert_eq!(text.contains("http://[::1]:2379"), !etcd.is_empty(), "{text}");
        }
        for file in [&token, &admin] {
            assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_ne!(fs::read(&token).unwrap(), fs::read(&admin).unwrap());
        // Nothing is written over.
        let before = fs::read(&token).unwrap();
        scratch.fails(4, &["exists"], &args);
        assert_eq!(fs::read(&token).unwrap(), before);
    }
}

#[test]
fn bad_hosts_are_refused_and_nothing_is_written() {
    let scratch = System::none();
    let out = scratch.path("files");
    for (hosts, word) in [("a,a", "twice"), ("a,../b", "../b"), ("a,,b", "''"), ("a b", "a b")] {
        let args = ["config", "generate", "--hosts", hosts, "--out", out.to_str().unwrap()];
        scratch.fails(2, &[word], &args);
        assert!(!out.exists());
    }
}

#[test]
fn mistakes_are_named_with_their_line() {
    let scratch = System::none();
    let file = scratch.path("engine.toml");
    let path = file.to_str().unwrap();
    for (text, words) in [
        ("dir = '/a'\nlitsen = 'x'\n[[target]]\ndevice = '/d'\n", ["litsen", "line 2"]),
        ("dir = '/a'\ndown_after_s = 'x'\n[[target]]\ndevice = '/d'\n", ["down_after_s", "line 2"]),
        ("dir = '/a'\ndown_after_s = 1\n[[target]]\ndevice = '/d'\n", ["down_after_s", "86400"]),
        (
            "dir = '/a'\ntoken_file = '/not/there'\n[[target]]\ndevice = '/d'\n",
            ["/not/there", path],
        ),
        // The engine ended with an "invalid socket address".
        (
            "dir = '/a'\nlisten = '127.0.0.1'\n[[target]]\ndevice = '/d'\n",
            ["has no port; an address is HOST:PORT", path],
        ),
    ] {
        fs::write(&file, text).unwrap();
        let output = scratch.run(&["config", "check", path]);
        let said = harness::all_text(&output);
        assert!(!output.status.success(), "{text}: {said}");
        for word in words {
            assert!(said.contains(word), "{text}: {said}");
        }
    }
    scratch.fails(3, &["not/there"], &["config", "check", "/not/there"]);
    let keys: Value = scratch.json(&["config", "keys"]);
    assert!(keys.as_array().unwrap().iter().any(|key| key["key"] == "down_after_s"));
}

/// A process that ends with the value.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an engine; where, once it is up. Somebody else may have taken the port that was free a moment ago: then it ends, and has another one.
fn start_at_a_free_port(
    settings: impl Fn(&str) -> Vec<String>,
    is_up: impl Fn(&str) -> bool,
) -> (String, Running) {
    for _ in 0..5 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = port.local_addr().unwrap().to_string();
        drop(port);
        let mut command = harness::azekura();
        command.args(settings(&at)).stderr(std::process::Stdio::null());
        let mut running = Running(command.spawn().unwrap());
        for _ in 0..600 {
            if is_up(&at) {
                return (at, running);
            }
            if running.0.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
    panic!("the engine does not come up");
}

/// Runs a command until it succeeds; what it printed.
fn until_ok(command: impl Fn() -> std::process::Command) -> String {
    for _ in 0..600 {
        let output = command().output().unwrap();
        if output.status.success() {
            return String::from_utf8(output.stdout).unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{}", harness::all_text(&command().output().unwrap()));
}

/// What somebody hears who is on the way between a client and an engine.
#[derive(Default)]
struct Overheard {
    /// Of the first connection, from the client.
    asked: Vec<u8>,
    all: Vec<u8>,
}

/// Passes connections on, to hear what goes over them; where it listens.
fn listen_in(to: &str) -> (String, Arc<Mutex<Overheard>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let (to, heard) = (to.to_string(), Arc::<Mutex<Overheard>>::default());
    let kept = heard.clone();
    std::thread::spawn(move || {
        for (number, near) in listener.incoming().map_while(Result::ok).enumerate() {
            let Ok(far) = TcpStream::connect(&to) else { return };
            let ways = [
                (near.try_clone().unwrap(), far.try_clone().unwrap(), number == 0),
                (far, near, false),
            ];
            for (mut from, mut to, is_asked) in ways {
                let heard = kept.clone();
                std::thread::spawn(move || {
                    let mut piece = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut piece) {
                        let mut heard = heard.lock().unwrap();
                        heard.all.extend_from_slice(&piece[..count]);
                        if is_asked {
                            heard.asked.extend_from_slice(&piece[..count]);
                        }
                        if to.write_all(&piece[..count]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (at, heard)
}

/// The secret went over the network as it is, and who had heard it could connect for ever.
fn what_is_overheard_is_of_no_use(engine: &str, scratch: &System) {
    let (way, heard) = listen_in(engine);
    let mut query = harness::azekura();
    query.args(["--system", &format!("tcp://{way}"), "system", "query"]);
    query.env("AZEKURA_TOKEN_FILE", scratch.path("admin-token"));
    let output = query.output().unwrap();
    assert!(output.status.success(), "{}", harness::all_text(&output));
    let heard = heard.lock().unwrap();
    assert!(heard.all.len() > 200, "something was heard");
    let secret = fs::read(scratch.path("admin-token")).unwrap().trim_ascii().to_vec();
    assert!(!heard.all.windows(secret.len()).any(|part| part == secret), "the secret was sent");
    // The same words again.
    let mut again = TcpStream::connect(engine).unwrap();
    again.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    again.write_all(&heard.asked).unwrap();
    let mut answer = Vec::new();
    // It may hang up with something unread.
    let _ = again.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains("0.1."), "it was let in: {answer}");
}

#[test]
fn engines_join_by_settings_alone_and_clients_do_not_administer() {
    let scratch = System::none();
    let path = |name: &str| scratch.path(name).to_str().unwrap().to_string();
    for secret in ["token", "admin-token", "wrong"] {
        fs::write(scratch.path(secret), format!("{secret} of many bytes\n")).unwrap();
    }
    fs::write(scratch.path("empty"), "").unwrap();
    let settings = |at: &str, listen: &str, join: Option<&str>, admin: &str| {
        let mut args: Vec<String> = ["engine", "--engine-dir", &path(at), "--listen", listen]
            .into_iter()
            .chain(["--device", &path(&format!("{at}-t")), "--domain", at])
            .chain(["--token-file", &path("token"), "--admin-token-file", &path(admin)])
            .map(str::to_string)
            .collect();
        args.extend(join.iter().flat_map(|join| ["--join".to_string(), format!("tcp://{join}")]));
        args
    };
    let ask_at = |at: &str, secret: &str, args: &[&str]| {
        let mut command = harness::azekura();
        command.args(["--system", &format!("tcp://{at}")]).args(args);
        command.env("AZEKURA_TOKEN_FILE", scratch.path(secret));
        command
    };
    let (first, _first) = start_at_a_free_port(
        |at| settings("a", at, None, "admin-token"),
        |at| ask_at(at, "token", &["system", "query"]).output().unwrap().status.success(),
    );
    // A system that gives no answer, or not this one, is not called stopped.
    for (at, secret, code, word) in
        [(&first[..], "wrong", 8, "token"), ("127.0.0.1:1", "token", 6, "127.0.0.1:1")]
    {
        let told = ask_at(at, secret, &["status"]).output().unwrap();
        let text = harness::all_text(&told);
        assert_eq!(told.status.code(), Some(code), "{text}");
        assert!(text.contains(word) && !text.contains("stopped"), "{text}");
    }
    let ask = |secret: &str, args: &[&str]| ask_at(&first, secret, args);
    // With another secret, or none, nobody is.
    for secret in ["wrong", "empty"] {
        let output = ask(secret, &["system", "query"]).output().unwrap();
        assert_eq!(output.status.code(), Some(8), "{}", harness::all_text(&output));
        assert!(harness::all_text(&output).contains("wrong or missing token"));
    }
    what_is_overheard_is_of_no_use(&first, &scratch);
    // One with the clients' secret for the engines' is not let in.
    let wrong = harness::azekura()
        .args(settings("c", "127.0.0.1:0", Some(&first), "wrong"))
        .output()
        .unwrap();
    assert!(!wrong.status.success());
    assert!(harness::all_text(&wrong).contains("token"), "{}", harness::all_text(&wrong));
    // Nor is one with another secret for clients: it joined, and refused each of them.
    let mut args = settings("d", "127.0.0.1:0", Some(&first), "admin-token");
    let given = args.iter().position(|arg| *arg == path("token")).unwrap();
    args[given] = path("wrong");
    let wrong = harness::azekura().args(args).output().unwrap();
    assert!(!wrong.status.success());
    let told = harness::all_text(&wrong);
    assert!(told.contains("has another secret for clients"), "{told}");
    let listed = || {
        let text = until_ok(|| ask("token", &["--json", "system", "list-engines"]));
        serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().len()
    };
    let (second, _second) = start_at_a_free_port(
        |at| settings("b", at, Some(&first), "admin-token"),
        |_| listed() == 2,
    );
    let create = ["pool", "create", "tank", "--size", "256MiB"];
    let refused = ask("token", &create).output().unwrap();
    assert_eq!(refused.status.code(), Some(8), "{}", harness::all_text(&refused));
    assert!(harness::all_text(&refused).contains("admin_token_file"));
    until_ok(|| ask("admin-token", &create));
    // Files are for clients, with copies on both engines.
    let file = scratch.path("data");
    fs::write(&file, harness::noise(7, 300_000)).unwrap();
    until_ok(|| ask("token", &["cont", "create", "tank", "home", "--rd-fac", "1"]));
    until_ok(|| ask("token", &["fs", "cp", file.to_str().unwrap(), "azk://tank/home/"]));
    let back = ask("token", &["fs", "cat", "azk://tank/home/data"]).output().unwrap();
    assert!(back.stdout == fs::read(&file).unwrap());
    let stopped = ask("token", &["pool", "destroy", "tank", "--force"]).output().unwrap();
    assert_eq!(stopped.status.code(), Some(8), "{}", harness::all_text(&stopped));
    // What was given can be kept, and is right.
    let saved = scratch.path("engine.toml");
    let mut args = settings("b", &second, Some(&first), "admin-token");
    args.extend(["--save".to_string(), path("engine.toml")]);
    scratch.ok(&args);
    scratch.ok(&["config", "check", saved.to_str().unwrap()]);
    assert!(fs::read_to_string(&saved).unwrap().contains(&second));
}
