//! The catalog in a real etcd: the contract, other systems beside it, etcd killed and restarted under
//! commits, answers that are lost, requests that arrive late.

use crate::contract::{self, Place, absent, commit, contents, put};
use crate::etcd_server::{EtcdServer, Proxy, Way};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use control::{
    Candidate, Catalog, Compare, ElectionNews, EtcdAccess, EtcdCatalog, EtcdConfig, Revision,
};
use futures_executor::{block_on, block_on_stream};
use serde_json::json;
use std::cell::Cell;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Result};
use uuid::Uuid;

/// Long enough for any machine.
const LONG: Duration = Duration::from_secs(3600);

/// A system's part of an etcd.
#[derive(Clone)]
pub struct Prefix {
    endpoint: String,
    name: String,
    run: Rc<Cell<u64>>,
}

impl Prefix {
    pub fn new(endpoint: String, name: &str) -> Prefix {
        Prefix { endpoint, name: name.to_string(), run: Rc::default() }
    }

    fn config(&self, engine: u32) -> EtcdConfig {
        self.run.set(self.run.get() + 1);
        let access = EtcdAccess { endpoints: vec![self.endpoint.clone()], ..EtcdAccess::default() };
        EtcdConfig {
            lease: LONG,
            wait: Duration::ZERO,
            deadline: LONG,
            attempt_time: LONG,
            ..EtcdConfig::new(
                access,
                &self.name,
                Uuid::from_u128(engine as u128),
                "here",
                self.run.get(),
            )
        }
    }

    fn try_open(&self, config: EtcdConfig) -> Result<EtcdCatalog> {
        block_on(EtcdCatalog::open(config))
    }
}

impl Place for Prefix {
    fn open(&self, engine: u32) -> Result<Box<dyn Catalog>> {
        Ok(Box::new(self.try_open(self.config(engine))?))
    }
}

#[test]
fn etcd_holds_the_contract_and_several_systems_apart() {
    let Some(server) = EtcdServer::start() else { return };
    // One name is the beginning of another.
    let names = ["s", "s/r", "s/1"].map(|name| Prefix::new(server.endpoint(), name));
    let catalogs = names.clone().map(|place| place.open(1).unwrap());
    for (catalog, name) in catalogs.iter().zip(&names) {
        assert!(commit(&**catalog, &[absent("name")], &[put("name", &name.name)]));
    }
    let systems = Cell::new(10);
    contract::check(|| {
        systems.set(systems.get() + 1);
        Box::new(Prefix::new(server.endpoint(), &format!("s/{}", systems.get())))
    });
    for (catalog, name) in catalogs.iter().zip(&names) {
        assert_eq!(contents(&**catalog)["name"], name.name);
    }
    assert_eq!(contents(&*catalogs[1]).len(), 1);
}

#[test]
fn another_engine_takes_over_when_the_lease_has_ended() {
    let Some(server) = EtcdServer::start() else { return };
    let place = Prefix::new(server.endpoint(), "azekura");
    let first = place.open(1).unwrap();
    assert!(commit(&*first, &[], &[put("a", "1")]));
    let error = place.open(2).err().unwrap();
    assert_eq!(error.code, Code::Busy);
    assert!(error.text.contains("here") && error.text.contains("azekura"), "{error}");
    // One that ends well has ended when it is gone, also in a program that is over right then; its data stay.
    drop(first);
    let second = place.try_open(place.config(2)).unwrap();
    assert_eq!(contents(&second)["a"], "1");
    drop(second);
    // One that has died is waited for until its lease ends.
    let text = |text: &str| STANDARD.encode(text);
    let lease = server.post("/v3/lease/grant", &json!({ "TTL": "1" }));
    let dead = format!("{{\"engine\":\"{}\",\"host\":\"there\"}}", Uuid::from_u128(3));
    let (key, value) = (text("azekura:leader"), text(&dead));
    let put = json!({ "key": key, "value": value, "lease": lease["ID"] });
    server.post("/v3/kv/put", &put);
    let third = place.try_open(EtcdConfig { wait: LONG, ..place.config(1) }).unwrap();
    assert_eq!(contents(&third)["a"], "1");
}

fn elected(news: Option<ElectionNews>) -> EtcdCatalog {
    match news {
        Some(ElectionNews::Elected(catalog)) => catalog,
        other => panic!("{other:?}"),
    }
}

#[test]
fn candidates_follow_one_another_and_one_commits() {
    let Some(server) = EtcdServer::start() else { return };
    let place = Prefix::new(server.endpoint(), "azekura");
    let (mut first, heard_first) = Candidate::stand(place.config(1)).unwrap();
    let mut heard_first = block_on_stream(heard_first);
    let catalog = elected(heard_first.next());
    assert!(commit(&catalog, &[], &[put("a", "1")]));
    let (_second, heard_second) = Candidate::stand(place.config(2)).unwrap();
    let mut heard_second = block_on_stream(heard_second);
    assert!(matches!(heard_second.next(), Some(ElectionNews::Follow(None))));
    // One that leaves is followed at once, for the lease is long.
    block_on(first.leave());
    let error = block_on(catalog.commit(&[], &[put("a", "2")])).unwrap_err();
    assert_eq!(error.code, Code::Busy, "{error}");
    let next = elected(heard_second.next());
    assert!(next.term() > catalog.term());
    assert!(commit(&next, &[], &[put("a", "3")]));
    // One from which another takes over hears so, and goes on as a candidate.
    let third = place.try_open(EtcdConfig { run: 1000, ..place.config(2) }).unwrap();
    while block_on(next.commit(&[], &[put("a", "4")])).is_ok() {}
    assert!(matches!(heard_second.next(), Some(ElectionNews::Lost)));
    drop(elected(heard_second.next()));
    assert_eq!(block_on(third.commit(&[], &[put("a", "5")])).unwrap_err().code, Code::Busy);
    assert_eq!(block_on(third.get("a")).unwrap_err().code, Code::Busy);
}

/// A writer that gives up what it has is followed by another that stands, and takes it again itself when nobody does.
#[test]
fn what_is_given_up_goes_to_another_or_comes_back() {
    let Some(server) = EtcdServer::start() else { return };
    let place = Prefix::new(server.endpoint(), "azekura");
    let (first, heard_first) = Candidate::stand(place.config(1)).unwrap();
    let mut heard_first = block_on_stream(heard_first);
    let catalog = elected(heard_first.next());
    // Nobody else is there.
    first.give_up(catalog.term(), Duration::from_millis(10));
    assert!(matches!(heard_first.next(), Some(ElectionNews::Lost)));
    let again = elected(heard_first.next());
    assert!(again.term() > catalog.term());
    assert_eq!(block_on(catalog.commit(&[], &[put("a", "1")])).unwrap_err().code, Code::Busy);
    // What is said to an earlier one does not concern this one.
    first.give_up(catalog.term(), LONG);
    assert!(commit(&again, &[], &[put("a", "2")]));
    let (_second, heard_second) = Candidate::stand(place.config(2)).unwrap();
    let mut heard_second = block_on_stream(heard_second);
    assert!(matches!(heard_second.next(), Some(ElectionNews::Follow(None))));
    first.give_up(again.term(), Duration::from_secs(2));
    assert!(matches!(heard_first.next(), Some(ElectionNews::Lost)));
    let taken = elected(heard_second.next());
    assert!(commit(&taken, &[], &[put("a", "3")]));
    assert!(matches!(heard_first.next(), Some(ElectionNews::Follow(None))));
}

/// An engine whose lease ended while etcd was away is the writer still, if nobody took over.
#[test]
fn a_lease_that_has_ended_is_had_again() {
    let Some(server) = EtcdServer::start() else { return };
    let place = Prefix::new(server.endpoint(), "azekura");
    let lease = Duration::from_secs(1);
    let first = place.try_open(EtcdConfig { lease, ..place.config(1) }).unwrap();
    let leader = json!({ "key": STANDARD.encode("azekura:leader") });
    for _ in 0..2 {
        let found = server.post("/v3/kv/range", &leader);
        let Some(held) = found["kvs"][0]["lease"].as_str() else { continue };
        server.post("/v3/lease/revoke", &json!({ "ID": held }));
        // There again, on another lease.
        loop {
            let found = server.post("/v3/kv/range", &leader);
            if found["kvs"][0]["lease"].as_str().is_some_and(|now| now != held) {
                break;
            }
            std::thread::yield_now();
        }
        assert!(commit(&first, &[], &[put("a", "1")]));
    }
}

#[test]
fn etcd_is_killed_and_comes_back_under_commits() {
    let Some(server) = EtcdServer::start() else { return };
    let place = Prefix::new(server.endpoint(), "azekura");
    let catalog = place.open(1).unwrap();
    let mut revision = Revision::ABSENT;
    for round in 1..=6u8 {
        let change = control::Change::Put("round".into(), vec![round]);
        // In every other round etcd dies while commits are made, else before.
        let is_beside = round.is_multiple_of(2);
        std::thread::scope(|scope| {
            let crash = scope.spawn(|| {
                server.kill();
                if is_beside {
                    server.restart();
                }
            });
            if !is_beside {
                crash.join().unwrap();
                let error = block_on(catalog.commit(&[], &[put("lost", "x")])).unwrap_err();
                assert_eq!(error.code, Code::Unreach, "{error}");
                assert_eq!(block_on(catalog.get("lost")).unwrap_err().code, Code::Unreach);
                server.restart();
            }
            let held = [Compare { key: "round".into(), revision }];
            loop {
                match block_on(catalog.commit(&held, std::slice::from_ref(&change))) {
                    Ok(done) => {
                        assert!(done, "nobody else commits");
                        break;
                    }
                    // Nobody listens.
                    Err(error) => assert_eq!(error.code, Code::Unreach, "{error}"),
                }
            }
        });
        let found = loop {
            match block_on(catalog.get("round")) {
                Ok(found) => break found.unwrap(),
                Err(error) => assert_eq!(error.code, Code::Unreach, "{error}"),
            }
        };
        assert_eq!(found.bytes, [round]);
        assert!(found.revision > revision);
        revision = found.revision;
    }
    assert_eq!(contents(&*catalog).len(), 1);
}

/// A read on a connection that etcd's end had cut was "maybe carried out", so it was tried until its
/// whole time was up, with nobody there to ask: the first command after etcd's end took 20 s.
#[test]
fn a_read_does_not_wait_for_an_etcd_that_is_gone() {
    let Some(server) = EtcdServer::start() else { return };
    let catalog = Prefix::new(server.endpoint(), "azekura").open(1).unwrap();
    assert!(commit(&*catalog, &[], &[put("a", "1")]));
    server.kill();
    assert_eq!(block_on(catalog.get("a")).unwrap_err().code, Code::Unreach);
}

/// A commit whose answer was lost was once a conflict for whoever sent it again: the record had
/// changed, by itself.
#[test]
fn a_lost_answer_is_found_again() {
    let Some(server) = EtcdServer::start() else { return };
    let proxy = Proxy::new(&server);
    let place = Prefix::new(proxy.endpoint(), "azekura");
    let catalog = place.open(1).unwrap();
    for round in 0..5 {
        proxy.set(Way::LoseOneAnswer);
        let key = format!("key{round}");
        assert!(commit(&*catalog, &[absent(&key)], &[put(&key, "1")]));
        // So is one that changes nothing.
        proxy.set(Way::LoseOneAnswer);
        assert!(!commit(&*catalog, &[absent(&key)], &[put(&key, "2")]));
    }
    assert!(contents(&*catalog).into_values().eq(std::iter::repeat_n("1".to_string(), 5)));
}

/// A catalog whose requests are given up soon; the machine may be too slow for one.
fn hasty(place: &Prefix) -> EtcdCatalog {
    let time = Duration::from_millis(200);
    loop {
        let config = EtcdConfig { deadline: time, attempt_time: time, ..place.config(1) };
        match place.try_open(config) {
            Ok(catalog) => return catalog,
            Err(error) => assert_eq!(error.code, Code::Unreach, "{error}"),
        }
    }
}

/// Tries until it is known to be done.
fn commit_at_last(catalog: &dyn Catalog, key: &str, value: &str) {
    while !matches!(block_on(catalog.commit(&[], &[put(key, value)])), Ok(true)) {}
}

/// A commit that ends in "not known"; one that never was on the way is tried again.
fn commit_unknown(catalog: &dyn Catalog, value: &str) -> types::Error {
    loop {
        let error = block_on(catalog.commit(&[], &[put("a", value)])).unwrap_err();
        match error.code {
            Code::TimedOut => return error,
            code => assert_eq!(code, Code::Unreach, "{error}"),
        }
    }
}

#[test]
fn what_is_not_known_is_said_and_reads_tell() {
    let Some(server) = EtcdServer::start() else { return };
    let proxy = Proxy::new(&server);
    let place = Prefix::new(proxy.endpoint(), "azekura");
    let catalog = hasty(&place);
    proxy.set(Way::LoseAnswers);
    let error = commit_unknown(&catalog, "1");
    assert!(error.text.contains("not known"), "{error}");
    proxy.set(Way::Open);
    commit_at_last(&catalog, "b", "1");
    let found = loop {
        if let Ok(found) = block_on(catalog.get("a")) {
            break found;
        }
    };
    // It may have been given up before it was on the way.
    assert!(found.is_none_or(|found| found.bytes == b"1"));
}

#[test]
fn a_request_that_arrives_late_changes_nothing() {
    let Some(server) = EtcdServer::start() else { return };
    let proxy = Proxy::new(&server);
    let place = Prefix::new(proxy.endpoint(), "azekura");
    let catalog = hasty(&place);
    proxy.set(Way::Hold);
    commit_unknown(&catalog, "late");
    proxy.set(Way::Open);
    commit_at_last(&catalog, "a", "now");
    println!("{} requests arrived late", proxy.let_go());
    let (direct, mut taken) = (Prefix::new(server.endpoint(), "azekura"), place.config(1));
    taken.access.endpoints = vec![server.endpoint()];
    let next = direct.try_open(taken).unwrap();
    assert_eq!(contents(&next)["a"], "now");
    // The same from a writer that was taken over from meanwhile.
    assert!(commit(&next, &[], &[put("a", "next")]));
    let late = block_on(catalog.commit(&[], &[put("a", "late")])).unwrap_err();
    assert!(matches!(late.code, Code::Busy | Code::TimedOut | Code::Unreach), "{late}");
    assert_eq!(contents(&next), [("a".to_string(), "next".to_string())].into());
}

#[test]
fn users_are_asked_for_their_password() {
    let Some(server) = EtcdServer::start() else { return };
    for (path, body) in [
        ("/v3/auth/user/add", json!({ "name": "root", "password": "r" })),
        ("/v3/auth/user/add", json!({ "name": "azekura", "password": "p" })),
        ("/v3/auth/role/add", json!({ "name": "root" })),
        ("/v3/auth/role/add", json!({ "name": "mine" })),
        (
            "/v3/auth/role/grant",
            json!({ "name": "mine", "perm": {
            "permType": "READWRITE", "key": STANDARD.encode("mine:"),
            "range_end": STANDARD.encode("mine;"),
        } }),
        ),
        ("/v3/auth/user/grant", json!({ "user": "root", "role": "root" })),
        ("/v3/auth/user/grant", json!({ "user": "azekura", "role": "mine" })),
        ("/v3/auth/enable", json!({})),
    ] {
        let answer = server.post(path, &body);
        assert!(answer["error"].is_null(), "{path}: {answer}");
    }
    let open = |prefix: &str, login: Option<(&str, &str)>| {
        let place = Prefix::new(server.endpoint(), prefix);
        let mut config = place.config(1);
        config.access.login = login.map(|(name, word)| (name.to_string(), word.to_string()));
        place.try_open(config)
    };
    for (prefix, login) in [
        ("mine", None),
        ("mine", Some(("azekura", "wrong"))),
        ("mine", Some(("nobody", "p"))),
        ("others", Some(("azekura", "p"))),
    ] {
        let error = open(prefix, login).unwrap_err();
        assert_eq!(error.code, Code::NoPerm, "{prefix} {login:?}: {error}");
    }
    let catalog = open("mine", Some(("azekura", "p"))).unwrap();
    assert!(commit(&catalog, &[], &[put("a", "1")]));
    // Tokens do not outlive etcd.
    server.kill();
    server.restart();
    while let Err(error) = block_on(catalog.commit(&[], &[put("a", "2")])) {
        assert_eq!(error.code, Code::Unreach, "{error}");
    }
    assert_eq!(contents(&catalog)["a"], "2");
}

/// Certificates by `openssl`, in a directory: an authority, and what it signs for each name.
fn make_certificates(dir: &Path, names: &[(&str, &str)]) -> bool {
    let run = |line: &str| {
        let done = Command::new("openssl").current_dir(dir).args(line.split(' ')).output();
        done.is_ok_and(|output| output.status.success())
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let ca = format!("req -x509 {key} -days 2 -subj /CN=ca -keyout ca.key -out ca.pem");
    run(&ca)
        && names.iter().all(|(name, alt)| {
            std::fs::write(dir.join("alt"), format!("subjectAltName={alt}\n")).unwrap();
            run(&format!("req -new {key} -subj /CN={name} -keyout {name}.key -out {name}.csr"))
                && run(&format!(
                    "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                     -extfile alt -out {name}.pem"
                ))
        })
}

#[test]
fn certificates_are_checked_on_both_sides() {
    let has_openssl = Command::new("openssl").arg("version").output().is_ok();
    if !has_openssl {
        println!("SKIPPED: no openssl here");
        return;
    }
    let start = |name: &str| {
        EtcdServer::start_with("https", |dir| {
            let names = [("here", "IP:127.0.0.1"), ("there", "DNS:there"), ("user", "DNS:user")];
            assert!(make_certificates(dir, &names));
            let file = |end: &str| dir.join(end).display().to_string();
            let (cert, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
            let flags = [
                ("--cert-file=", cert),
                ("--key-file=", key),
                ("--trusted-ca-file=", file("ca.pem")),
            ];
            let flags = flags.map(|(flag, value)| format!("{flag}{value}"));
            flags.into_iter().chain(["--client-cert-auth".to_string()]).collect()
        })
    };
    let Some(server) = start("here") else { return };
    let with = |server: &EtcdServer, of: &EtcdServer, user: bool| {
        let place = Prefix::new(server.endpoint(), "azekura");
        let mut config = place.config(1);
        // A member that refuses a certificate hangs up: that looks as an outage does.
        config.deadline = Duration::from_secs(1);
        config.access.ca = Some(of.dir().join("ca.pem"));
        if user {
            config.access.cert = Some(server.dir().join("user.pem"));
            config.access.key = Some(server.dir().join("user.key"));
        }
        config
    };
    let open = |config: EtcdConfig| block_on(EtcdCatalog::open(config));
    let long = |config: EtcdConfig| EtcdConfig { deadline: LONG, ..config };
    let catalog = open(long(with(&server, &server, true))).unwrap();
    assert!(commit(&catalog, &[], &[put("a", "1")]));
    drop(catalog);
    assert_eq!(open(with(&server, &server, false)).unwrap_err().code, Code::Unreach);
    // Of another name, or signed by somebody else: that is seen before anything is sent.
    let Some(misnamed) = start("there") else { return };
    for (server, of) in [(&misnamed, &misnamed), (&server, &misnamed)] {
        let error = open(long(with(server, of, true))).unwrap_err();
        assert_eq!(error.code, Code::Unreach);
        assert!(error.text.contains("certificate"), "{error}");
    }
    let mut config = with(&server, &server, true);
    config.access.key = None;
    assert_eq!(open(config).unwrap_err().code, Code::Inval);
}

#[test]
fn settings_that_lead_nowhere_are_named() {
    let place = |endpoint: &str| Prefix::new(endpoint.to_string(), "azekura");
    let fails = |config: EtcdConfig| block_on(EtcdCatalog::open(config)).unwrap_err();
    let error = fails(place("127.0.0.1:2379").config(1));
    assert_eq!(error.code, Code::Inval);
    assert!(error.text.contains("http://"), "{error}");
    let mut config = place("http://127.0.0.1:1").config(1);
    config.prefix = "a:b".into();
    assert_eq!(fails(config).code, Code::Inval);
    let mut config = place("https://127.0.0.1:1").config(1);
    config.access.endpoints.clear();
    assert_eq!(fails(config.clone()).code, Code::Inval);
    config.access.endpoints.push("https://127.0.0.1:1".into());
    config.access.ca = Some("/none/ca.pem".into());
    let error = fails(config);
    assert_eq!(error.code, Code::Io);
    assert!(error.text.contains("/none/ca.pem"), "{error}");
    // Nobody listens on a port that was just given back.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = fails(place(&format!("http://127.0.0.1:{port}")).config(1));
    assert_eq!(error.code, Code::Unreach);
}
