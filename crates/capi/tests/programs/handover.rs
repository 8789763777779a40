//! Global handles go from one process to the next through files, after the exporter has closed
//! its own and ended.

use crate::harness::{self, Language, check, compile};

#[test]
fn handles_outlive_the_process_that_exported_them() {
    let system = harness::System::start();
    for language in [Language::C, Language::Cpp, Language::Sanitized] {
        let program = compile("handover", language, system.scratch.path());
        let name = format!("handover-{language:?}").to_lowercase();
        let dir = system.scratch.path().join(&name);
        std::fs::create_dir(&dir).unwrap();
        for role in ["export", "import"] {
            let mut command = system.command(&program);
            command.args(["tank", &name, role]).arg(&dir).env("AZEKURA_JOB", &name);
            check(role, language, command.output().unwrap());
        }
        // Both are one job.
        let [operations, ..] = system.job(&name);
        assert!(operations > 0, "{name}");
    }
}
