//! The checks: each reads a few files of the kernel's and says what it found.
//!
//! All paths are below a root that tests replace. A file that cannot be read is a finding only
//! where its absence means something.

use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use types::size;

/// How bad a finding is.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Works, slower or less safely than it could.
    Slow,
    /// Keeps Azekura from working.
    Broken,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Ok => "ok",
            Verdict::Slow => "slow",
            Verdict::Broken => "BROKEN",
        })
    }
}

/// What one check found.
#[derive(Serialize, Clone, Debug)]
pub struct Finding {
    /// How bad it is.
    pub state: Verdict,
    /// What was looked at.
    pub what: &'static str,
    pub found: String,
    /// What it means for Azekura; empty when all is well.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub effect: &'static str,
    /// The command that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

fn ok(what: &'static str, found: impl Into<String>) -> Finding {
    Finding { state: Verdict::Ok, what, found: found.into(), effect: "", mend: None }
}

fn slow(
    what: &'static str,
    found: impl Into<String>,
    effect: &'static str,
    mend: impl Into<String>,
) -> Finding {
    Finding { state: Verdict::Slow, what, found: found.into(), effect, mend: Some(mend.into()) }
}

fn broken(
    what: &'static str,
    found: impl Into<String>,
    effect: &'static str,
    mend: impl Into<String>,
) -> Finding {
    Finding { state: Verdict::Broken, ..slow(what, found, effect, mend) }
}

/// All checks; `dirs` are where targets keep their data.
pub fn examine(root: &Path, dirs: &[PathBuf]) -> Vec<Finding> {
    let mut findings = vec![
        kernel(root),
        io_uring(root),
        fuse(root),
        fuse_uring(root),
        yama(root),
        huge_pages(root),
        descriptors(root),
    ];
    findings.extend(governor(root));
    findings.extend(cgroup(root));
    findings.extend(dirs.iter().map(|dir| space(dir)));
    findings
}

/// A file's text without white space around it.
fn text(root: &Path, path: &str) -> Option<String> {
    std::fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_string())
}

/// Major and minor version of the running kernel.
fn release(root: &Path) -> Option<(u32, u32)> {
    let text = text(root, "proc/sys/kernel/osrelease")?;
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel(root: &Path) -> Finding {
    let what = "kernel";
    match release(root) {
        Some((major, minor)) if (major, minor) >= (5, 10) => ok(what, format!("{major}.{minor}")),
        Some((major, minor)) => slow(
            what,
            format!("{major}.{minor}"),
            "before 5.10 disks are served by plain system calls",
            "install a kernel of 5.10 or newer",
        ),
        None => slow(what, "unknown", "nothing can be said of it", "uname -r"),
    }
}

fn io_uring(root: &Path) -> Finding {
    let what = "io_uring";
    match text(root, "proc/sys/kernel/io_uring_disabled").as_deref() {
        None | Some("0") => ok(what, "allowed"),
        Some(value) => slow(
            what,
            format!("kernel.io_uring_disabled = {value}"),
            "disks are served by plain system calls, one thread at a time",
            "sysctl -w kernel.io_uring_disabled=0",
        ),
    }
}

fn fuse(root: &Path) -> Finding {
    let what = "mounts";
    if !root.join("dev/fuse").exists() {
        return slow(
            what,
            "no /dev/fuse",
            "'azekura mount' does not work; the library, the preload library and 'azekura fs' do",
            "modprobe fuse",
        );
    }
    let helper = ["bin/fusermount3", "usr/bin/fusermount3", "usr/local/bin/fusermount3"];
    match helper.iter().any(|path| root.join(path).exists()) {
        true => ok(what, "/dev/fuse, fusermount3"),
        false => slow(
            what,
            "no fusermount3",
            "only root can mount",
            "apt-get install fuse3    # or: dnf install fuse3",
        ),
    }
}

fn fuse_uring(root: &Path) -> Finding {
    let what = "FUSE over io_uring";
    let parameter = "sys/module/fuse/parameters/enable_uring";
    match text(root, parameter).as_deref() {
        Some("Y" | "1") => ok(what, "on"),
        Some(_) => slow(
            what,
            "off",
            "small operations on mounts take about twice as long",
            format!(
                "echo Y > /{parameter}; echo 'options fuse enable_uring=1' > /etc/modprobe.d/fuse.conf"
            ),
        ),
        None if release(root).is_some_and(|release| release >= (6, 14)) => slow(
            what,
            "unknown",
            "the fuse module is not loaded, or was built without it",
            "modprobe fuse enable_uring=1",
        ),
        None => ok(what, "not in this kernel (from 6.14 on)"),
    }
}

fn yama(root: &Path) -> Finding {
    let what = "single copy";
    match text(root, "proc/sys/kernel/yama/ptrace_scope").as_deref() {
        None | Some("0" | "1") => ok(what, "allowed between processes of one user"),
        Some(scope) => slow(
            what,
            format!("kernel.yama.ptrace_scope = {scope}"),
            "large transfers on one machine are copied twice, through shared memory",
            "sysctl -w kernel.yama.ptrace_scope=1",
        ),
    }
}

fn huge_pages(root: &Path) -> Finding {
    let what = "huge pages";
    let path = "sys/kernel/mm/transparent_hugepage/enabled";
    match text(root, path) {
        Some(modes) if modes.contains("[never]") => slow(
            what,
            "never",
            "pools in memory and large indexes are slower",
            format!("echo madvise > /{path}"),
        ),
        Some(_) => ok(what, "allowed"),
        None => ok(what, "not in this kernel"),
    }
}

/// Descriptors that an engine wants: some for each client, target and device.
const DESCRIPTORS_MIN: u64 = 4096;

fn descriptors(root: &Path) -> Finding {
    let what = "open files";
    let limits = text(root, "proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(4));
    match hard.map(str::parse::<u64>) {
        Some(Ok(hard)) if hard < DESCRIPTORS_MIN => slow(
            what,
            format!("at most {hard}"),
            "an engine takes two descriptors and more for each client",
            "echo '* - nofile 65536' > /etc/security/limits.d/azekura.conf",
        ),
        Some(_) => ok(what, hard.unwrap_or("unlimited")),
        None => ok(what, "unknown"),
    }
}

fn governor(root: &Path) -> Option<Finding> {
    let what = "CPU governor";
    let governor = text(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")?;
    Some(match governor.as_str() {
        "powersave" | "conservative" | "ondemand" => slow(
            what,
            governor,
            "a core that has waited is slow when a request comes",
            "cpupower frequency-set -g performance",
        ),
        _ => ok(what, governor),
    })
}

/// Limits of the control group of this process (version 2).
fn cgroup(root: &Path) -> Vec<Finding> {
    let own = text(root, "proc/self/cgroup").unwrap_or_default();
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    // A limit of any group around this one holds, too.
    let mut group = PathBuf::from(path);
    loop {
        let limit = |name: &str| {
            let file = Path::new("sys/fs/cgroup").join(&group).join(name);
            text(root, &file.to_string_lossy())
        };
        let shown = format!("/{}", group.display());
        if let Some(bytes) = limit("memory.max").and_then(|text| text.parse::<u64>().ok())
            && bytes < 2 << 30
        {
            findings.push(slow(
                "memory of the control group",
                format!("{} in {shown}", size::format(bytes)),
                "an engine that takes more is killed; its index and pools in memory count",
                "systemctl set-property UNIT MemoryMax=infinity",
            ));
        }
        if let Some(text) = limit("cpu.max")
            && let Some((quota, period)) = text.split_once(' ')
            && let (Ok(quota), Ok(period)) = (quota.parse::<f64>(), period.parse::<f64>())
            && quota < 2.0 * period
        {
            findings.push(slow(
                "CPU of the control group",
                format!("{:.1} cores in {shown}", quota / period),
                "targets stand still when it is used up",
                "systemctl set-property UNIT CPUQuota=",
            ));
        }
        if !group.pop() {
            return findings;
        }
    }
}

/// Less free space than this is soon full.
const SPACE_MIN_BYTES: u64 = 8 << 30;

fn space(dir: &Path) -> Finding {
    let what = "space for targets";
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    let stat = match rustix::fs::statfs(there) {
        Ok(stat) => stat,
        Err(error) => {
            return broken(
                what,
                format!("{}: {}", there.display(), std::io::Error::from(error)),
                "an engine cannot keep its data there",
                format!("ls -ld {}", there.display()),
            );
        }
    };
    let bytes = stat.f_bavail.saturating_mul(stat.f_bsize as u64);
    let found = format!("{} free in {}", size::format(bytes), there.display());
    const READ_ONLY: u64 = libc::ST_RDONLY;
    if rustix::fs::statvfs(there).is_ok_and(|stat| stat.f_flag.bits() & READ_ONLY != 0) {
        return broken(
            what,
            format!("{} is read-only", there.display()),
            "an engine cannot keep its data there",
            format!("mount -o remount,rw {}", there.display()),
        );
    }
    match stat.f_type as i64 {
        libc::NFS_SUPER_MAGIC => slow(
            what,
            format!("{found}, on NFS"),
            "the store's log wants a disk of this machine",
            "azekura up --dir DIR-ON-A-LOCAL-DISK",
        ),
        libc::TMPFS_MAGIC => slow(
            what,
            format!("{found}, in memory"),
            "everything is lost when the machine stops",
            "azekura up --dir DIR-ON-A-LOCAL-DISK",
        ),
        _ if bytes < SPACE_MIN_BYTES => slow(
            what,
            found,
            "pools are limited by what is free",
            format!("df -h {}", there.display()),
        ),
        _ => ok(what, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine made of files.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(files: &[(&str, &str)]) -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            for (path, text) in files {
                let path = machine.0.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            machine
        }

        fn examine(&self) -> Vec<Finding> {
            examine(self.0.path(), &[])
        }
    }

    const GOOD: &[(&str, &str)] = &[
        ("proc/sys/kernel/osrelease", "6.14.3-generic\n"),
        ("proc/sys/kernel/io_uring_disabled", "0\n"),
        ("proc/sys/kernel/yama/ptrace_scope", "1\n"),
        ("dev/fuse", ""),
        ("usr/bin/fusermount3", ""),
        ("sys/module/fuse/parameters/enable_uring", "Y\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        (
            "proc/self/limits",
            "Limit   Soft Limit   Hard Limit   Units\nMax open files   1024   524288   files\n",
        ),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
        ("proc/self/cgroup", "0::/user.slice/job\n"),
        ("sys/fs/cgroup/user.slice/job/memory.max", "max\n"),
        ("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n"),
    ];

    #[test]
    fn a_machine_as_it_should_be_needs_nothing() {
        for finding in Machine::new(GOOD).examine() {
            assert_eq!(finding.state, Verdict::Ok, "{finding:?}");
            assert!(finding.mend.is_none() && finding.effect.is_empty(), "{finding:?}");
        }
    }

    #[test]
    fn each_lack_is_named_with_what_mends_it() {
        for (path, lack, what, word) in [
            ("proc/sys/kernel/osrelease", "4.18.0-553.el8\n", "kernel", "5.10"),
            ("proc/sys/kernel/io_uring_disabled", "2\n", "io_uring", "io_uring_disabled=0"),
            ("proc/sys/kernel/yama/ptrace_scope", "3\n", "single copy", "ptrace_scope=1"),
            (
                "sys/module/fuse/parameters/enable_uring",
                "N\n",
                "FUSE over io_uring",
                "echo Y > /sys/module/fuse/parameters/enable_uring",
            ),
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "always madvise [never]\n",
                "huge pages",
                "echo madvise",
            ),
            (
                "proc/self/limits",
                "Max open files            1024                 1024                 files\n",
                "open files",
                "nofile",
            ),
            (
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "powersave\n",
                "CPU governor",
                "performance",
            ),
            (
                "sys/fs/cgroup/user.slice/job/cpu.max",
                "50000 100000\n",
                "CPU of the control group",
                "CPUQuota",
            ),
            // The limit of a group above.
            (
                "sys/fs/cgroup/user.slice/memory.max",
                "536870912\n",
                "memory of the control group",
                "MemoryMax",
            ),
        ] {
            let mut files = GOOD.to_vec();
            files.retain(|(name, _)| *name != path);
            files.push((path, lack));
            let findings = Machine::new(&files).examine();
            let bad: Vec<_> =
                findings.iter().filter(|finding| finding.state != Verdict::Ok).collect();
            assert_eq!(bad.len(), 1, "{path}: {bad:?}");
            assert_eq!(bad[0].what, what);
            assert!(bad[0].mend.as_ref().unwrap().contains(word), "{bad:?}");
        }
    }

    #[test]
    fn without_fuse_the_rest_still_works() {
        let files: Vec<_> = GOOD.iter().copied().filter(|(name, _)| *name != "dev/fuse").collect();
        let findings = Machine::new(&files).examine();
        let worst = findings.iter().map(|finding| finding.state).max();
        assert_eq!(worst, Some(Verdict::Slow));
    }

    #[test]
    fn space_is_looked_at_where_the_directory_will_be() {
        let dir = tempfile::tempdir().unwrap();
        let finding = space(&dir.path().join("not/yet/there"));
        assert!(finding.found.contains(&*dir.path().to_string_lossy()), "{finding:?}");
    }
}
