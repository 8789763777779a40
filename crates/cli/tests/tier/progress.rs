//! Long work tells on a terminal how far it is, and nothing of that anywhere else.

use super::*;

/// What bars are made of.
const BAR: [char; 2] = ['█', '░'];

/// Everything that a command wrote to a terminal of its own; `None` where nobody makes one.
fn on_a_terminal(system: &System, args: &[&str]) -> Option<String> {
    let command = system.command(args);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line: Vec<String> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    let mut script = Command::new("script");
    script.args(["-qefc", &line.join(" "), "/dev/null"]).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.env("TERM", "xterm");
    let output = match script.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!(
                "SKIPPED: no progress was looked at: there is no 'script' (util-linux): {error}"
            );
            return None;
        }
    };
    assert!(output.status.success(), "{args:?}: {}", all_text(&output));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn long_work_tells_a_terminal_how_far_it_is_and_nobody_else() {
    let system = system();
    put(&system, "a", &noise(1, 19 * MIB));
    let url = &format!("{HOME}/a");
    let here = system.path("here");
    for (args, what) in [
        (&["fs", "tier", "sync", url][..], "sync"),
        (&["fs", "tier", "evict", url], "evict"),
        (&["fs", "tier", "fetch", url], "fetch"),
        (&["fs", "tier", "evict", url], "evict"),
        (&["fs", "cp", url, here.to_str().unwrap()], ""),
    ] {
        let Some(shown) = on_a_terminal(&system, args) else { return };
        let bars: Vec<&str> = shown.split('\r').filter(|line| line.contains(BAR)).collect();
        let is_whole = |line: &&str| line.contains("19.00 MiB") && line.contains(what);
        assert!(bars.iter().any(is_whole), "{args:?}: {shown:?}");
        // At the end it is wiped out: what stays is what the command has to say.
        let end = shown.rfind(BAR).unwrap();
        assert!(shown[end..].contains("\u{1b}[2K"), "{args:?}: {shown:?}");
    }
    for quiet in [&["--quiet"][..], &["--json"]] {
        let args = [&["fs", "tier", "fetch", url], quiet].concat();
        let shown = on_a_terminal(&system, &args).unwrap();
        assert!(!shown.contains(BAR), "{args:?}: {shown:?}");
        system.ok(&["fs", "tier", "evict", url]);
    }
    let output = system.run(&["fs", "tier", "fetch", url]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", all_text(&output));
    assert!(!all_text(&output).contains(BAR));
}
