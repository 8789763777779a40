//! `fs`: trees go in and come out the same; each verb does what its name says.

use crate::harness::{self, System, all_text, assert_same_tree, make_tree, noise, tree};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Stdio;

#[test]
fn a_tree_goes_in_around_and_out_the_same() {
    let system = System::with_home();
    let source = system.path("source");
    make_tree(&source);
    let xattrs = rustix::fs::setxattr(
        source.join("chunk"),
        "user.colour",
        b"blue\0green",
        rustix::fs::XattrFlags::empty(),
    )
    .is_ok();
    let local = source.to_str().unwrap();

    // In, compared on the way; the target does not exist, so it becomes the tree.
    let report = system.json(&["fs", "cp", "-r", "--verify", local, "azk://tank/home/tree"]);
    let entries = tree(&source);
    assert_eq!(report["errors"], serde_json::json!([]), "{report}");
    assert_eq!(report["symlinks"], 3, "{report}");
    assert_eq!(report["hard_links"], 2, "{report}");
    // Every name is compared, also the further ones.
    let files = report["files"].as_u64().unwrap();
    assert_eq!(report["verified_files"], files + 2, "{report}");
    // It exists now, so a second copy goes below it; from container to container this time.
    system.ok(&["cont", "create", "tank", "other", "--file-oclass", "SX", "--chunk-size", "64k"]);
    system.ok(&["fs", "mkdir", "azk://tank/other/below"]);
    system.ok(&["fs", "cp", "-r", "azk://tank/home/tree", "azk://tank/other/below"]);
    // Out of either.
    for (name, url) in [("one", "azk://tank/home/tree"), ("two", "azk://tank/other/below/tree")] {
        let back = system.path(name);
        system.ok(&["fs", "cp", "-r", "--verify", url, back.to_str().unwrap()]);
        assert_same_tree(&source, &back);
        if xattrs {
            let mut value = [0; 64];
            let count =
                rustix::fs::getxattr(back.join("chunk"), "user.colour", &mut value[..]).unwrap();
            assert_eq!(&value[..count], b"blue\0green");
        }
    }
    // Again over what is there: files are replaced, nothing else changes.
    fs::write(source.join("one.new"), "new").unwrap();
    harness::set_mtime(&source, 1_700_000_000, 5);
    system.ok(&["fs", "cp", "-rT", local, "azk://tank/home/tree"]);
    let back = system.path("three");
    system.ok(&["fs", "get", "-r", "azk://tank/home/tree", back.to_str().unwrap()]);
    assert_same_tree(&source, &back);
    // With --update, what is the same is left alone.
    let report = system.json(&["fs", "cp", "-rTu", local, "azk://tank/home/tree"]);
    assert_eq!(report["files"], 0, "{report}");
    assert!(report["skipped"].as_u64().unwrap() > 60, "{report}");

    // The checker and the counters agree with the tree.
    let check = system.json(&["fs", "check", "azk://tank/home"]);
    assert_eq!(check["clean"], true, "{check}");
    let found = system.json(&["fs", "find", "azk://tank/home/tree"]);
    assert_eq!(found.as_array().unwrap().len(), entries.len() + 1, "with one.new");
}

#[test]
fn verify_notices_every_kind_of_difference() {
    let system = System::with_home();
    let source = system.path("source");
    fs::create_dir(&source).unwrap();
    for name in ["content", "mode", "mtime", "size", "gone", "same"] {
        fs::write(source.join(name), noise(7, 5000)).unwrap();
    }
    std::os::unix::fs::symlink("a", source.join("link")).unwrap();
    let (local, url) = (source.to_str().unwrap(), "azk://tank/home/tree");
    system.ok(&["fs", "cp", "-r", local, url]);
    // The same walk as after a copy, but with nothing to copy: everything is "the same" for
    // --update, which looks at size and mtime only, so the differences survive until compared.
    let mut bytes = noise(7, 5000);
    bytes[4321] ^= 1;
    let meta = fs::metadata(source.join("content")).unwrap();
    fs::write(source.join("content"), &bytes).unwrap();
    fs::File::options()
        .write(true)
        .open(source.join("content"))
        .unwrap()
        .set_modified(meta.modified().unwrap())
        .unwrap();
    let output = system.run(&["fs", "cp", "-rTu", "--verify", "--json", local, url]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{report}");
    let errors = report["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{report}");
    let message = errors[0]["message"].as_str().unwrap();
    assert!(message.contains("content") && message.contains("byte 4321"), "{message}");
}

#[test]
fn errors_in_a_tree_are_listed_and_the_rest_is_copied() {
    let system = System::with_home();
    let source = system.path("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    fs::write(source.join("dir/good"), "good").unwrap();
    fs::write(source.join("clash"), "file").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        source.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    system.ok(&["fs", "mkdir", "-p", "azk://tank/home/tree/clash"]);
    let output = system.run(&["fs", "cp", "-rT", source.to_str().unwrap(), "azk://tank/home/tree"]);
    let text = all_text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("tree/clash is a directory"), "{text}");
    assert!(text.contains("source/pipe is a special file"), "{text}");
    assert_eq!(system.ok(&["fs", "cat", "azk://tank/home/tree/dir/good"]), "good");
    // A pipe alone was taken for wrong usage.
    let output = system.run(&["fs", "cp", "-r", source.to_str().unwrap(), "azk://tank/home/2"]);
    assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
}

/// A file of 200 GiB in which a few blocks are written comes and goes within moments, and takes the room of these. It was read, and kept wherever 4 MiB were not all zero.
#[test]
fn what_is_a_hole_is_neither_read_nor_written() {
    let system = System::with_home();
    let (path, size) = (system.path("sparse"), 200 << 30);
    let file = fs::File::create(&path).unwrap();
    let written: [u64; 4] = [0, 1 << 20, 77 << 30, size - 5];
    let data = noise(5, 70_000);
    for offset in written {
        let count = data.len().min((size - offset) as usize);
        file.write_all_at(&data[..count], offset).unwrap();
    }
    file.set_len(size).unwrap();
    let local = path.to_str().unwrap();
    let url = "azk://tank/home/sparse";
    let report = system.json(&["fs", "put", "--verify", local, url]);
    assert_eq!(report["bytes"], size, "{report}");
    system.ok(&["fs", "cp", "--verify", url, "azk://tank/home/again"]);
    for url in [url, "azk://tank/home/again"] {
        let stat = &system.json(&["fs", "stat", url])[0];
        assert_eq!(stat["size"], size, "{stat}");
        let bytes = stat["stored_bytes"].as_u64().unwrap();
        assert!((210_000..1 << 20).contains(&bytes), "{stat}");
    }
    let back = system.path("back");
    system.ok(&["fs", "get", "--verify", "azk://tank/home/again", back.to_str().unwrap()]);
    let back = fs::File::open(back).unwrap();
    let meta = back.metadata().unwrap();
    assert_eq!(meta.len(), size);
    assert!(meta.blocks() * 512 < 2 << 20, "{} blocks", meta.blocks());
    for offset in written {
        let mut read = vec![0; data.len().min((size - offset) as usize)];
        back.read_exact_at(&mut read, offset).unwrap();
        assert!(read == data[..read.len()], "at {offset}");
    }
    // What is written where the other one has a hole is found.
    let changed = fs::File::options().write(true).open(&path).unwrap();
    let mtime = changed.metadata().unwrap().modified().unwrap();
    changed.write_all_at(b"x", 50 << 30).unwrap();
    changed.set_modified(mtime).unwrap();
    for (from, to) in [(local, url), (url, local)] {
        let output = system.run(&["fs", "cp", "-Tu", "--verify", from, to]);
        assert_eq!(output.status.code(), Some(1));
        assert!(all_text(&output).contains("differs from"), "{}", all_text(&output));
    }
}

#[test]
fn streams_go_in_and_out() {
    let system = System::with_home();
    let data = noise(3, (9 << 20) + 5);
    let mut child = system
        .command(&["fs", "put", "-", "azk://tank/home/stream"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&data).unwrap();
    assert!(child.wait().unwrap().success());
    for args in [
        &["fs", "get", "azk://tank/home/stream", "-"][..],
        &["fs", "cat", "azk://tank/home/stream"],
        &["fs", "cat", "azk://tank/home/stream", "--json"],
    ] {
        let output = system.run(args);
        assert!(output.status.success());
        assert!(output.stdout == data, "{args:?}");
    }
    // A reader that has seen enough is no error.
    let mut child = system
        .command(&["fs", "cat", "azk://tank/home/stream"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_verbs_do_what_their_names_say() {
    let system = System::with_home();
    let url = |path: &str| format!("azk://tank/home/{path}");
    let names =
        |args: &[&str]| -> Vec<String> { system.ok(args).lines().map(str::to_string).collect() };
    let file = system.path("file");
    fs::write(&file, noise(4, 10_000)).unwrap();
    let file = file.to_str().unwrap();
    system.ok(&["fs", "mkdir", "-p", "-m", "0750", &url("a/b/c")]);
    system.ok(&["fs", "mkdir", "-p", &url("a/b/c")]);
    system.ok(&["fs", "put", file, &url("a/f")]);
    system.ok(&["fs", "put", file, file, &url("a/b/")]);
    system.ok(&["fs", "put", file, &url("a/.hidden")]);

    assert_eq!(names(&["fs", "ls", &url("a")]), ["b", "f"]);
    assert_eq!(names(&["fs", "ls", "-a", &url("a")]), [".hidden", "b", "f"]);
    let listed = system.json(&["fs", "ls", "-R", &url("a")]);
    assert_eq!(listed.as_array().unwrap().len(), 3, "{listed}");
    assert_eq!(listed[0]["entries"][0]["type"], "directory", "{listed}");
    let long = system.ok(&["fs", "ls", "-lh", &url("a")]);
    assert!(long.contains("-rw") && long.contains("9.77 KiB"), "{long}");
    assert!(system.ok(&["fs", "ls", "-ld", &url("a/b/c")]).contains("drwxr-x---"));

    let stat = system.json(&["fs", "stat", &url("a/f")]);
    assert_eq!(stat[0]["size"], 10_000, "{stat}");
    assert_eq!(stat[0]["oclass"], "SX+1MiB", "{stat}");
    assert!(system.ok(&["fs", "stat", &url("a/f")]).contains("Chunk size"));

    system.ok(&["fs", "ln", &url("a/f"), &url("a/g")]);
    system.ok(&["fs", "ln", "-s", "f", &url("a/s")]);
    assert_eq!(system.json(&["fs", "stat", &url("a/g")])[0]["nlink"], 2);
    assert_eq!(system.json(&["fs", "stat", &url("a/s")])[0]["target"], "f");
    assert_eq!(system.json(&["fs", "stat", "-L", &url("a/s")])[0]["type"], "file");
    assert!(system.ok(&["fs", "ls", "-l", &url("a")]).contains("s -> f"));
    system.ok(&["fs", "ln", "-sf", "g", &url("a/s")]);

    // 10,000 bytes under two names, twice elsewhere: two names count once.
    let usage = system.json(&["fs", "du", "-s", "--apparent-size", &url("a")]);
    assert_eq!(usage[0]["bytes"], 3 * 10_000 + 1, "{usage}");
    assert!(system.ok(&["fs", "du", "-sh", &url("a")]).contains("KiB"));
    assert_eq!(system.json(&["fs", "du", &url("a")]).as_array().unwrap().len(), 3);
    let space = system.json(&["fs", "df", "azk://tank/home"]);
    assert!(space[0]["free_bytes"].as_u64().unwrap() > 900 << 20, "{space}");
    // The index tier lends nothing: of 1 GiB a tenth is no room for data.
    assert!(space[0]["free_bytes"].as_u64().unwrap() < 922 << 20, "{space}");
    assert!(system.ok(&["fs", "df", "azk://tank/home"]).contains("GiB"));

    let finds = |more: &[&str]| {
        let start = url("a");
        let mut args = vec!["fs", "find", &start];
        args.extend(more);
        let found = names(&args);
        let strip = |line: &String| line.strip_prefix(&url("")).unwrap().to_string();
        found.iter().map(strip).collect::<Vec<_>>()
    };
    assert_eq!(finds(&["--type", "d"]), ["a", "a/b", "a/b/c"]);
    assert_eq!(finds(&["--name", "[fg]"]), ["a/f", "a/g"]);
    assert_eq!(finds(&["--type", "l"]), ["a/s"]);
    let all = finds(&[]).len();
    let counted = system.ok(&["fs", "find", &url("a"), "--name", "[fg]", "--count"]);
    assert_eq!(counted, format!("2 of {all}\n"));
    let counted = system.json(&["fs", "find", &url("a"), "--count"]);
    assert_eq!(counted["found_count"], all, "{counted}");
    assert_eq!(counted["seen_count"], all, "{counted}");
    assert_eq!(finds(&["--size", "+9KiB", "--max-depth", "1"]), ["a/.hidden", "a/f", "a/g"]);
    assert_eq!(finds(&["--size", "-2", "--type", "f"]), Vec::<String>::new());
    harness::set_mtime(file.as_ref(), 4_000_000_000, 0);
    assert_eq!(finds(&["--newer", file]), Vec::<String>::new());
    harness::set_mtime(file.as_ref(), 1, 0);
    assert!(finds(&["--newer", file]).len() > 5);

    system.ok(&["fs", "mv", &url("a/g"), &url("a/b/")]);
    assert_eq!(names(&["fs", "ls", &url("a/b")]), ["c", "file", "g"]);
    system.ok(&["fs", "mv", "--exchange", &url("a/f"), &url("a/b")]);
    assert_eq!(names(&["fs", "ls", &url("a/f")]), ["c", "file", "g"]);
    system.ok(&["fs", "mv", &url("a/f"), &url("moved")]);
    assert_eq!(names(&["fs", "ls", "azk://tank/home"]), ["a", "moved"]);

    system.ok(&["fs", "set-attr", &url("a/b"), "colour=blue", "user.n=1"]);
    assert_eq!(system.ok(&["fs", "get-attr", &url("a/b"), "colour"]), "blue\n");
    let attrs = system.json(&["fs", "get-attr", &url("a/b")]);
    assert_eq!((&attrs["user.colour"], &attrs["user.n"]), (&"blue".into(), &"1".into()), "{attrs}");
    assert_eq!(attrs["user.azekura.oclass"], "SX+1MiB", "{attrs}");
    system.ok(&["fs", "del-attr", &url("a/b"), "n"]);
    system.fails(3, &["user.n"], &["fs", "get-attr", &url("a/b"), "n"]);

    // Files made in a directory take its class and chunk size.
    system.ok(&["fs", "mkdir", &url("striped")]);
    system.ok(&["fs", "set-attr", &url("striped"), "--oclass", "SX", "--chunk-size", "8KiB"]);
    system.ok(&["fs", "put", file, &url("striped/x")]);
    let stat = system.json(&["fs", "stat", &url("striped/x")]);
    assert_eq!((&stat[0]["oclass"], &stat[0]["chunk_bytes"]), (&"SX".into(), &8192.into()));
    system.fails(2, &["not a directory"], &["fs", "set-attr", &url("a/b"), "--oclass", "SX"]);
    let wide = ["fs", "set-attr", &url("striped"), "--dir-oclass", "SX@1024"];
    system.ok(&wide);
    let class = system.ok(&["fs", "get-attr", &url("striped"), "azekura.dir_oclass"]);
    assert_eq!(class, "SX@1024\n");
    system.ok(&["fs", "mkdir", &url("striped/wide")]);
    let stat = system.json(&["fs", "stat", &url("striped/wide")]);
    assert_eq!(stat[0]["oclass"], "SX@1024", "{stat}");
    let files = ["fs", "set-attr", &url("striped"), "--oclass", "SX@1024"];
    system.fails(2, &["SX@1024", "of directories"], &files);

    system.ok(&["fs", "rm", &url("a/s")]);
    system.ok(&["fs", "rm", "-f", &url("a/s")]);
    system.ok(&["fs", "rm", "-r", &url("a"), &url("moved"), &url("striped")]);
    assert!(names(&["fs", "ls", "azk://tank/home"]).is_empty());
    let check = system.json(&["fs", "check", "azk://tank/home"]);
    assert_eq!((&check["clean"], &check["entries"]), (&true.into(), &0.into()), "{check}");
}

#[test]
fn a_pool_in_memory_forgets_and_is_ready_again() {
    let system = System::up(1, 2);
    system.ok(&["pool", "create", "ram", "--size", "256MiB", "--durability", "memory"]);
    system.ok(&["cont", "create", "ram", "home"]);
    let file = system.path("file");
    fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    system.ok(&["fs", "put", file, "azk://ram/home/x"]);
    system.ok(&["down"]);
    system.ok(&["up"]);
    // Nothing is left, but the container takes files again.
    system.ok(&["fs", "put", file, "azk://ram/home/y"]);
    assert_eq!(system.ok(&["fs", "ls", "azk://ram/home"]), "y\n");
}

#[test]
fn completion_scripts_know_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        let output = harness::azekura().args(["completion", shell]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        assert!(text.contains("set-prop") && text.contains("find"), "{shell}");
    }
}
