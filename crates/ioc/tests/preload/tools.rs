//! Programs that were not made for this: dd, cp, tar, Python.

use crate::harness::{Asked, Coordinator, data, run};
use coordinate::message::IoKind;
use preload::harness::has;

const MIB: usize = 1 << 20;

#[test]
fn dd_and_cp() {
    let coordinator = Coordinator::granting(1);
    let input = data(3 * MIB);
    std::fs::write(coordinator.dir().join("input"), &input).unwrap();
    let mut dd = coordinator.command("dd");
    dd.args(["if=input", "of=dd", "bs=1M"]);
    run(dd);
    assert!(coordinator.file("dd") == input);
    assert_eq!(coordinator.writes(), [MIB as u64; 3]);
    let mut cp = coordinator.command("cp");
    // No clone: the file system would copy nothing.
    cp.args(["--reflink=never", "input", "cp"]);
    run(cp);
    assert!(coordinator.file("cp") == input);
    // One copy by the kernel, or several by cp, as its version likes.
    let copied: u64 = coordinator.writes()[3..].iter().sum();
    assert_eq!(copied, 3 * MIB as u64);
}

#[test]
fn tar_packs_and_unpacks() {
    let coordinator = Coordinator::granting(1);
    let tree = coordinator.dir().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for number in 1..=4 {
        std::fs::write(tree.join(format!("file{number}")), data(number * 300_000)).unwrap();
    }
    let mut pack = coordinator.command("tar");
    pack.args(["--blocking-factor=400", "-cf", "archive", "tree"]);
    run(pack);
    assert!(coordinator.writes().len() >= 3_000_000 / (400 * 512), "{:?}", coordinator.writes());
    std::fs::create_dir(coordinator.dir().join("out")).unwrap();
    let mut unpack = coordinator.command("tar");
    unpack.args(["--blocking-factor=400", "-xf", "archive", "-C", "out"]);
    run(unpack);
    for number in 1..=4 {
        assert!(coordinator.file(&format!("out/tree/file{number}")) == data(number * 300_000));
    }
}

#[test]
fn python_and_its_children() {
    if !has("python3") {
        return;
    }
    let coordinator = Coordinator::granting(1);
    let mut python = coordinator.command("python3");
    let program = "
import multiprocessing, os
def put(name):
    with open(name, 'wb') as out:
        out.write(bytes(range(256)) * 4096)
if __name__ == '__main__':
    put('parent')
    with multiprocessing.get_context('fork').Pool(3) as pool:
        pool.map(put, ['child%d' % n for n in range(6)])
    fd = os.open('parent', os.O_RDONLY)
    assert len(os.read(fd, 1 << 21)) == 1 << 20
";
    python.args(["-c", program]).env("AZEKURA_IOC_READS", "1");
    run(python);
    let expected: Vec<u8> = (0..=255).cycle().take(MIB).collect();
    assert!(coordinator.file("parent") == expected);
    for child in 0..6 {
        assert!(coordinator.file(&format!("child{child}")) == expected);
    }
    assert_eq!(coordinator.writes(), [MIB as u64; 7]);
    let seen = coordinator.seen();
    // Python reads large modules of its own as well.
    let read = |one: &&Asked| one.kind == IoKind::Read && one.bytes == MIB as u64;
    assert_eq!(seen.asked.iter().filter(read).count(), 1, "{:?}", seen.asked);
    assert_eq!(seen.inside_max, 1);
}
