//! Hostile use of the C API: what was closed, what never was, threads and forks in each other's
//! way, and engines that stop and come back under a running program.

use crate::harness::{Language, System, check, compile};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use types::Durability;

#[test]
fn handles_that_are_none() {
    System::start().run("hostile", &[]);
}

#[test]
fn arguments_that_are_none() {
    System::start().run("hostile_args", &[]);
}

#[test]
fn threads_and_forks() {
    System::start().run("hostile_threads", &[]);
}

/// A program that is talked to by lines; ended with the test.
struct Talk {
    child: Option<Child>,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Talk {
    fn with(mut child: Child) -> Talk {
        let out = child.stdout.take().unwrap();
        Talk { child: Some(child), lines: BufReader::new(out).lines() }
    }

    /// Waits for a line. When the program ends instead, what it printed fails the test.
    fn hear(&mut self, wanted: &str) {
        match self.lines.next() {
            Some(Ok(line)) => assert_eq!(line, wanted),
            _ => {
                check("outage", Language::C, self.end());
                panic!("the program ended before it said '{wanted}'");
            }
        }
    }

    fn say(&mut self, word: &str) {
        let input = self.child.as_mut().and_then(|child| child.stdin.as_mut()).unwrap();
        writeln!(input, "{word}").unwrap();
    }

    fn end(&mut self) -> std::process::Output {
        self.child.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_program_goes_on_when_engines_come_back() {
    let mut system = System::start_with(Durability::Wal);
    for language in [Language::C, Language::Sanitized] {
        let program = compile("outage", language, system.scratch.path());
        let name = format!("outage-{language:?}").to_lowercase();
        let mut command = system.command(&program);
        command.args(["tank", &name, "2"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut talk = Talk::with(command.spawn().unwrap());
        // The second engine alone, then the first, which also answers for the system.
        for engine in [1, 0] {
            talk.hear("ready");
            system.engines().stop_engine(engine).unwrap();
            talk.say("down");
            talk.hear("launched");
            system.engines().start_engine(engine).unwrap();
            talk.say("up");
        }
        check("outage", language, talk.end());
    }
}
