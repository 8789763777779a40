//! What a file and an environment come to.

use super::*;
use crate::rules::Assign;
use std::collections::BTreeMap;

/// Loads with these variables and files, on host `node12`, as user 7.
fn load(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Result<Option<Settings>> {
    load_as(false, variables, files)
}

fn load_as(
    privileged: bool,
    variables: &[(&str, &str)],
    files: &[(&str, &str)],
) -> Result<Option<Settings>> {
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    Settings::load(&Surroundings {
        variable: &|name| variables.get(name).map(|value| value.to_string()),
        read: &|path| Ok(path.to_str().and_then(|path| files.get(path)).map(|t| t.to_string())),
        host: "node12",
        user: 7,
        privileged,
    })
}

fn on(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Settings {
    load(variables, files).unwrap().expect("coordination is on")
}

fn complaint(variables: &[(&str, &str)], files: &[(&str, &str)]) -> String {
    load(variables, files).unwrap_err().to_string()
}

const ADDRESS: (&str, &str) = ("AZEKURA_IOC", "unix:/run/ioc.sock");

#[test]
fn nothing_is_coordinated_without_a_coordinator() {
    assert_eq!(load(&[], &[]).unwrap(), None);
    assert_eq!(load(&[("AZEKURA_IOC", "")], &[]).unwrap(), None);
    assert_eq!(load(&[], &[(SITE_FILE, "min_size = 0\n")]).unwrap(), None);
    let site = (SITE_FILE, "coordinator = \"tcp:c:1\"\n");
    assert_eq!(load(&[("AZEKURA_IOC", "off")], &[site]).unwrap(), None);
}

#[test]
fn the_usual_settings() {
    let settings = on(&[ADDRESS], &[]);
    assert_eq!(settings.endpoint.to_string(), "unix:/run/ioc.sock");
    assert_eq!(settings.min_bytes, 8 << 20);
    assert_eq!(settings.timeout, Duration::from_secs(10));
    assert_eq!((settings.weight, settings.priority), (1, 0));
    assert_eq!((settings.job.as_str(), settings.host.as_str()), ("uid-7", "node12"));
    assert_eq!((settings.rank, settings.reads, settings.summary), (None, false, false));
    assert_eq!(settings.rules, Rule::usual());
}

#[test]
fn every_key_of_the_file() {
    let text = r#"
        coordinator = "tcp:[::1]:7431"
        group = "z0"
        job = "nightly"
        weight = 3
        priority = 9
        min_size = "1MiB"
        reads = true
        timeout = "500ms"
        wait_max = 60
        backoff = "2s"
        backoff_max = "3min"
        token_file = "/etc/token"
        rank_variable = "MY_RANK"
        log = "/var/log/ioc"
        log_calls = true
        summary = true

        [[rule]]
        path = "/tmp/**"
        target = "none"

        [[rule]]
        fstype = "nfs*"
        target = "hash:4:nfs"
    "#;
    let settings = on(&[("MY_RANK", "11"), ("PMI_RANK", "3")], &[(SITE_FILE, text)]);
    let expected = Settings {
        endpoint: Endpoint::Tcp("::1".into(), 7431),
        group: "z0".into(),
        job: "nightly".into(),
        host: "node12".into(),
        rank: Some(11),
        weight: 3,
        priority: 9,
        min_bytes: 1 << 20,
        reads: true,
        timeout: Duration::from_millis(500),
        wait_max: Duration::from_secs(60),
        backoff: Duration::from_secs(2),
        backoff_max: Duration::from_secs(180),
        token_file: Some("/etc/token".into()),
        rules: vec![
            Rule { path: Some("/tmp/**".into()), fstype: None, assign: Assign::Never },
            Rule { path: None, fstype: Some("nfs*".into()), assign: "hash:4:nfs".parse().unwrap() },
        ],
        log: Some("/var/log/ioc".into()),
        log_calls: true,
        summary: true,
    };
    assert_eq!(settings, expected);
}

#[test]
fn the_environment_goes_over_the_file() {
    let text = "coordinator = \"tcp:c:1\"\ngroup = \"a\"\njob = \"b\"\nmin_size = 5\nreads = true\n\
                weight = 2\nlog = \"/l\"\n[[rule]]\ntarget = \"mount\"\n";
    let settings = on(
        &[
            ADDRESS,
            ("AZEKURA_IOC_GROUP", "g"),
            ("AZEKURA_IOC_JOB", "j"),
            ("AZEKURA_IOC_MIN_SIZE", "0"),
            ("AZEKURA_IOC_READS", "0"),
            ("AZEKURA_IOC_WEIGHT", "7"),
            ("AZEKURA_IOC_LOG", ""),
            ("AZEKURA_IOC_TARGET", "name:x"),
        ],
        &[(SITE_FILE, text)],
    );
    assert_eq!(settings.endpoint.to_string(), "unix:/run/ioc.sock");
    assert_eq!((settings.group.as_str(), settings.job.as_str()), ("g", "j"));
    assert_eq!((settings.min_bytes, settings.reads, settings.weight), (0, false, 7));
    assert_eq!(settings.log, None);
    assert_eq!(settings.rules, [Rule::always(Assign::Named("x".into()))]);
}

#[test]
fn the_nearest_file_counts_alone() {
    let file = |path, job| (path, format!("coordinator = \"tcp:c:1\"\njob = \"{job}\"\n"));
    let files = [
        file("/named", "named"),
        file("/xdg/azekura/ioc.toml", "xdg"),
        file("/home/u/.config/azekura/ioc.toml", "home"),
        file(SITE_FILE, "site"),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, &text[..])).collect();
    let job = |variables: &[(&str, &str)], files: &[(&str, &str)]| on(variables, files).job;
    let named = ("AZEKURA_IOC_CONFIG", "/named");
    let (xdg, home) = (("XDG_CONFIG_HOME", "/xdg"), ("HOME", "/home/u"));
    assert_eq!(job(&[named, xdg, home], &files), "named");
    assert_eq!(job(&[xdg, home], &files), "xdg");
    assert_eq!(job(&[home], &files), "home");
    assert_eq!(job(&[], &files), "site");
    assert_eq!(job(&[xdg, home], &files[3..]), "site");
    assert_eq!(load(&[("AZEKURA_IOC_CONFIG", ""), xdg], &files).unwrap(), None);
    assert!(complaint(&[named], &files[1..]).contains("/named"));
}

#[test]
fn a_privileged_program_hears_the_site_only() {
    let site = (SITE_FILE, "coordinator = \"tcp:site:1\"\n");
    let user = ("/xdg/azekura/ioc.toml", "coordinator = \"tcp:user:1\"\n");
    let variables = [ADDRESS, ("XDG_CONFIG_HOME", "/xdg"), ("AZEKURA_IOC_LOG", "/etc/shadow")];
    let settings = load_as(true, &variables, &[site, user]).unwrap().unwrap();
    assert_eq!(settings.endpoint.to_string(), "tcp:site:1");
    assert_eq!(settings.log, None);
    assert_eq!(load_as(true, &variables, &[user]).unwrap(), None);
}

#[test]
fn coordinators_by_rank_and_host() {
    let text = "coordinator = \"tcp:rest:1\"\ngroup = \"rest\"\n\
                [[coordinators]]\nhosts = [\"node1*\"]\nranks = \"0-31\"\nblock = 16\n\
                addresses = [\"tcp:a:1\", \"tcp:b:1\"]\ngroup = \"z{}\"\n\
                [[coordinators]]\nhosts = [\"node12\"]\nby = \"host\"\n\
                addresses = [\"tcp:c:1\", \"tcp:d:1\"]\n";
    let chosen = |variables: &[(&str, &str)]| {
        let settings = on(variables, &[(SITE_FILE, text)]);
        (settings.endpoint.to_string(), settings.group)
    };
    let pair = |address: &str, group: &str| (address.to_string(), group.to_string());
    assert_eq!(chosen(&[("SLURM_PROCID", "3")]), pair("tcp:a:1", "z0"));
    assert_eq!(chosen(&[("PMI_RANK", "17"), ("SLURM_PROCID", "3")]), pair("tcp:b:1", "z1"));
    assert_eq!(chosen(&[("PMI_RANK", "32")]), pair("tcp:c:1", "rest"));
    assert_eq!(chosen(&[("AZEKURA_IOC", "unix:/x")]), pair("unix:/x", "rest"));
}

#[test]
fn the_job_is_the_schedulers_unless_named() {
    assert_eq!(on(&[ADDRESS, ("SLURM_JOB_ID", "4711")], &[]).job, "4711");
    let named = [ADDRESS, ("SLURM_JOB_ID", "4711"), ("AZEKURA_IOC_JOB", "mine")];
    assert_eq!(on(&named, &[]).job, "mine");
}

#[test]
fn mistakes_are_told() {
    for (variable, value) in [
        ("AZEKURA_IOC", "node1"),
        ("AZEKURA_IOC_MIN_SIZE", "big"),
        ("AZEKURA_IOC_READS", "maybe"),
        ("AZEKURA_IOC_WEIGHT", "0"),
        ("AZEKURA_IOC_WEIGHT", "x"),
        ("AZEKURA_IOC_PRIORITY", "256"),
        ("AZEKURA_IOC_TIMEOUT", "soon"),
        ("AZEKURA_IOC_TARGET", "hash"),
        ("AZEKURA_IOC_JOB", "a\nb"),
    ] {
        let variables = [ADDRESS, (variable, value)];
        assert!(load(&variables, &[]).is_err(), "{variable}={value}");
    }
    for text in [
        "coordinator = 5",
        "cordinator = \"tcp:c:1\"",
        "[[rule]]\npath = \"/x\"",
        "coordinator = \"tcp:c:1\"\n[[rule]]\ntarget = \"x\"",
        "[[coordinators]]\naddresses = []",
        "[[coordinators]]\naddresses = [\"tcp:c:1\"]\nblock = 0",
        "[[coordinators]]\naddresses = [\"tcp:c:1\"]\nranks = \"all\"",
        "[[coordinators]]\naddresses = [\"tcp:c:1\"]\nby = \"moon\"",
    ] {
        assert!(load(&[], &[(SITE_FILE, text)]).is_err(), "{text}");
    }
    assert!(complaint(&[], &[(SITE_FILE, "x = 1")]).contains(SITE_FILE));
}

#[test]
fn durations() {
    for (text, ms) in [("0", 0), ("5", 5_000), ("5s", 5_000), ("20 ms", 20), ("2min", 120_000)] {
        assert_eq!(parse_duration(text).unwrap().as_millis(), ms, "{text}");
    }
    for bad in ["", "s", "-1s", "1.5s", "5 weeks", "99999999999999999999", "9999999999h"] {
        assert!(parse_duration(bad).is_err(), "{bad}");
    }
}
