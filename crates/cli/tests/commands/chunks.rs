//! `fs export` and `fs import`: a tree leaves in the chunk format of S2 and comes back the same.

use crate::harness::{self, System, assert_same_tree, make_tree, noise};
use std::fs;

const FORMAT: [&str; 2] = ["--format", "s2-chunks"];

fn export<'a>(from: &'a str, to: &'a str) -> Vec<&'a str> {
    [&["fs", "export", "--verify"][..], &FORMAT, &[from, to]].concat()
}

fn import<'a>(from: &'a str, to: &'a str) -> Vec<&'a str> {
    [&["fs", "import", "--verify"][..], &FORMAT, &[from, to]].concat()
}

#[test]
fn a_tree_leaves_and_comes_back() {
    let system = System::with_home();
    let source = system.path("source");
    make_tree(&source);
    // Two whole chunks and a bit, and none at all.
    fs::write(source.join("three-chunks"), noise(3, (64 << 20) + 5)).unwrap();
    fs::write(source.join("no-bytes"), b"").unwrap();
    harness::set_mtime(&source, 1_600_000_000, 7);
    system.ok(&["fs", "cp", "-r", source.to_str().unwrap(), "azk://tank/home/tree"]);

    let out = system.path("out");
    let out = out.to_str().unwrap();
    let report = system.json(&export("azk://tank/home/tree", out));
    assert_eq!(
        (&report["files"], &report["errors"]),
        (&report["verified_files"], &serde_json::json!([]))
    );
    // The names that anybody else would look for.
    let header = |path: &str| {
        let uuid = tier::s2_chunks::uuid_of(path.as_bytes());
        system.path("out").join(tier::s2_chunks::header_name(uuid))
    };
    assert_eq!(fs::metadata(header("/three-chunks")).unwrap().len(), 40 + 3 * 32);
    assert_eq!(fs::metadata(header("/no-bytes")).unwrap().len(), 40);
    system.fails(7, &["not empty"], &export("azk://tank/home/tree", out));

    system.json(&import(out, "azk://tank/home/back"));
    let back = system.path("back");
    system.ok(&["fs", "cp", "-r", "azk://tank/home/back", back.to_str().unwrap()]);
    assert_same_tree_but_links(&source, &back, &system);
    // What is there is not replaced.
    let again = system.run(&import(out, "azk://tank/home/back"));
    assert!(!again.status.success());
    assert!(harness::all_text(&again).contains("there already"));
}

/// Hard links come out as files of their own: made so on both sides before they are compared.
fn assert_same_tree_but_links(a: &std::path::Path, b: &std::path::Path, system: &System) {
    let copy = system.path("copy");
    let out = std::process::Command::new("cp")
        .args(["-r", "--preserve=mode,ownership,timestamps", "--no-dereference"])
        .args([a, &copy])
        .status();
    assert!(out.unwrap().success());
    assert_same_tree(&copy, b);
}

#[test]
fn damage_is_named_and_the_rest_comes_in() {
    let system = System::with_home();
    let source = system.path("source");
    fs::create_dir(&source).unwrap();
    for name in ["good", "flipped", "cut", "gone"] {
        fs::write(source.join(name), noise(9, 100_000)).unwrap();
    }
    system.ok(&["fs", "cp", "-r", source.to_str().unwrap(), "azk://tank/home/tree"]);
    let out = system.path("out");
    let out_text = out.to_str().unwrap();
    system.ok(&export("azk://tank/home/tree", out_text));
    let chunk = |path: &str| {
        let uuid = tier::s2_chunks::uuid_of(path.as_bytes());
        out.join(tier::s2_chunks::chunk_name(uuid, 0))
    };
    let mut raw = fs::read(chunk("/flipped")).unwrap();
    raw[5_000] ^= 4;
    fs::write(chunk("/flipped"), raw).unwrap();
    let raw = fs::read(chunk("/cut")).unwrap();
    fs::write(chunk("/cut"), &raw[..raw.len() - 1]).unwrap();
    fs::remove_file(chunk("/gone")).unwrap();

    let output = system.run(&import(out_text, "azk://tank/home/back"));
    assert_eq!(output.status.code(), Some(1));
    let text = harness::all_text(&output);
    let name = |path: &str| chunk(path).file_name().unwrap().to_str().unwrap().to_string();
    assert!(text.contains(&name("/flipped")) && text.contains("of /flipped"), "{text}");
    assert!(text.contains("of /cut") && text.contains(&name("/gone")), "{text}");
    let back = system.path("good");
    system.ok(&["fs", "get", "azk://tank/home/back/good", back.to_str().unwrap()]);
    assert_eq!(fs::read(back).unwrap(), noise(9, 100_000));
    for name in ["flipped", "cut", "gone"] {
        system.fails(3, &[name], &["fs", "stat", &format!("azk://tank/home/back/{name}")]);
    }
    // An export that did not come to its end has no list.
    fs::remove_file(out.join("index.jsonl")).unwrap();
    system.fails(3, &["no export"], &import(out_text, "azk://tank/home/other"));
}
