//! Classes and chunk sizes of what is made in directories: set, inherited, told, and refused.

use crate::harness::{World, with_fs};
use dfs::sys::Sys;
use dfs::{
    Code, CreateOptions, Credentials, Dfs, LayoutChange, Obj, OpenFlags, XattrMode, layout_attr,
};
use std::collections::BTreeMap;
use types::ObjClass;
use wire::control::{ControlRequest, Name, Subject};

fn class(name: &str) -> ObjClass {
    name.parse().unwrap()
}

async fn make(sys: &Sys, path: &str, options: &CreateOptions) -> Obj {
    let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
    sys.open(path.as_bytes(), flags, 0o644, options).await.unwrap()
}

async fn told(fs: &Dfs, obj: &Obj, name: &str) -> Result<String, Code> {
    let value = fs.getxattr(obj, name.as_bytes()).await.map_err(|error| error.code)?;
    Ok(String::from_utf8(value).unwrap())
}

async fn set(fs: &Dfs, obj: &Obj, name: &str, value: &str) -> Result<(), Code> {
    let set = fs.setxattr(obj, name.as_bytes(), value.as_bytes(), XattrMode::Set);
    set.await.map_err(|error| error.code)
}

#[test]
fn class_and_chunk_are_inherited() {
    with_fs(async |_, fs| {
        let sys = Sys::new(fs.clone());
        sys.mkdir(b"/d", 0o755).await.unwrap();
        let dir = sys.lookup(b"/d", true).await.unwrap();
        let change = LayoutChange {
            file_class: Some(Some(class("S2"))),
            dir_class: Some(Some(class("S1"))),
            chunk_bytes: Some(8192),
        };
        fs.change_layout(&dir, change).await.unwrap();
        let odd = LayoutChange { chunk_bytes: Some(1000), ..LayoutChange::RESET };
        assert_eq!(fs.change_layout(&dir, odd).await.unwrap_err().code, Code::Inval);
        sys.mkdir(b"/d/e", 0o755).await.unwrap();
        let file = make(&sys, "/d/e/f", &CreateOptions::default()).await;
        assert_eq!((file.class().unwrap(), file.chunk_bytes()), (class("S2"), 8192));
        let own = CreateOptions { class: Some(class("S1")), chunk_bytes: 16_384 };
        let file = make(&sys, "/d/g", &own).await;
        assert_eq!((file.class().unwrap(), file.chunk_bytes()), (class("S1"), 16_384));
        fs.write(&file, 0, &[1; 40_000]).await.unwrap();
        assert_eq!(sys.stat(b"/d/g").await.unwrap().size, 40_000);
        // What a change does not name stays.
        let change = LayoutChange { chunk_bytes: Some(0), ..LayoutChange::default() };
        fs.change_layout(&dir, change).await.unwrap();
        let file = make(&sys, "/d/h", &CreateOptions::default()).await;
        assert_eq!((file.class().unwrap(), file.chunk_bytes()), (class("S2"), 4096));
        fs.change_layout(&dir, LayoutChange::RESET).await.unwrap();
        assert_eq!(dir.file_class(), None);
    });
}

#[test]
fn layouts_are_extended_attributes_too() {
    use layout_attr::{CHUNK_SIZE, CLASS, DIR_CLASS, LAYOUT};
    with_fs(async |world, fs| {
        let sys = Sys::new(fs.clone());
        sys.mkdir(b"/d", 0o755).await.unwrap();
        let dir = sys.lookup(b"/d", true).await.unwrap();
        let default = world.cont.info().props.file_oclass.to_string();
        assert_eq!(told(&fs, &dir, CLASS).await.unwrap(), default);
        let of_dirs = world.cont.info().props.dir_oclass.to_string();
        assert_eq!(told(&fs, &dir, DIR_CLASS).await.unwrap(), of_dirs);
        assert_eq!(told(&fs, &dir, CHUNK_SIZE).await.unwrap(), "4096");
        set(&fs, &dir, CLASS, "rp_2g1").await.unwrap();
        set(&fs, &dir, DIR_CLASS, "RP_3GX").await.unwrap();
        set(&fs, &dir, CHUNK_SIZE, "8KiB").await.unwrap();
        let layout = told(&fs, &dir, LAYOUT).await.unwrap();
        let groups = |class: &str| if class.starts_with("SX") { 3 } else { 1 };
        let parts = [
            format!("oid={}", dir.oid()),
            format!("oclass={of_dirs} groups={} copies=1", groups(&of_dirs)),
            "file_oclass=RP_2G1 dir_oclass=RP_3GX chunk_size=8192".to_string(),
        ];
        assert_eq!(layout, parts.join(" "));

        let file = make(&sys, "/d/f", &CreateOptions::default()).await;
        assert_eq!(told(&fs, &file, CLASS).await.unwrap(), "RP_2G1");
        assert_eq!(told(&fs, &file, CHUNK_SIZE).await.unwrap(), "8192");
        assert_eq!(told(&fs, &file, DIR_CLASS).await, Err(Code::NoAttr));
        let layout = told(&fs, &file, LAYOUT).await.unwrap();
        assert!(layout.ends_with("oclass=RP_2G1 groups=1 copies=2 chunk_size=8192"), "{layout}");
        sys.mkdir(b"/d/e", 0o755).await.unwrap();
        let below = sys.lookup(b"/d/e", true).await.unwrap();
        assert_eq!(below.class().unwrap(), class("RP_3GX"));
        assert_eq!(told(&fs, &below, CLASS).await.unwrap(), "RP_2G1");

        // They are no attributes for programs that copy all there are.
        set(&fs, &dir, "user.azekura.note", "kept").await.unwrap();
        assert_eq!(fs.listxattr(&dir).await.unwrap(), [b"user.azekura.note"]);

        assert_eq!(set(&fs, &file, CLASS, "S1").await, Err(Code::NotSupported));
        assert_eq!(
            fs.removexattr(&file, CLASS.as_bytes()).await.unwrap_err().code,
            Code::NotSupported
        );
        assert_eq!(set(&fs, &dir, LAYOUT, "S1").await, Err(Code::NotSupported));
        for (name, bad) in [(CLASS, "RP_9G1"), (CHUNK_SIZE, "5000"), (CHUNK_SIZE, "much")] {
            assert_eq!(set(&fs, &dir, name, bad).await, Err(Code::Inval), "{name} {bad}");
        }
        // There are three targets.
        assert_eq!(set(&fs, &dir, CLASS, "RP_4G1").await, Err(Code::Redundancy));
        let anew = fs.setxattr(&dir, CLASS.as_bytes(), b"S1", XattrMode::Create).await;
        assert_eq!(anew.unwrap_err().code, Code::Exist);
        let ann = fs.with_credentials(Credentials::new(1, 1));
        let dir_of_ann = ann.attach(&dir.share());
        assert_eq!(told(&ann, &dir_of_ann, CLASS).await.unwrap(), "RP_2G1");
        assert_eq!(set(&ann, &dir_of_ann, CLASS, "S1").await, Err(Code::NoPerm));

        for name in [CLASS, DIR_CLASS, CHUNK_SIZE] {
            fs.removexattr(&dir, name.as_bytes()).await.unwrap();
        }
        assert_eq!(told(&fs, &dir, CLASS).await.unwrap(), default);
        assert_eq!(told(&fs, &dir, DIR_CLASS).await.unwrap(), of_dirs);
        assert_eq!(told(&fs, &dir, CHUNK_SIZE).await.unwrap(), "4096");
        assert_eq!(told(&fs, &file, CLASS).await.unwrap(), "RP_2G1");
    });
}

/// Defaults that were changed with `cont set-prop` did nothing: file systems went on with those they
/// had been made with.
#[test]
fn changed_defaults_of_the_container_are_those_of_new_files() {
    let world = World::new(7, "S1", "S1");
    world.cluster.block_on(async {
        let sys = Sys::new(world.mount(Credentials::root()).await);
        make(&sys, "/before", &CreateOptions::default()).await;
        let subject = Subject::Cont(world.cont.pool().name(), Name::Label("fs".into()));
        let props = [("file_oclass", "RP_2G1"), ("dir_oclass", "RP_2GX"), ("chunk_size", "8KiB")];
        let props = BTreeMap::from(props.map(|(name, value)| (name.into(), value.into())));
        world.client.control(&ControlRequest::SetProps { subject, props }).await.unwrap();

        let fs = world.mount_from("second", Credentials::root()).await;
        let sys = Sys::new(fs.clone());
        let file = make(&sys, "/after", &CreateOptions::default()).await;
        assert_eq!((file.class().unwrap(), file.chunk_bytes()), (class("RP_2G1"), 8192));
        sys.mkdir(b"/d", 0o755).await.unwrap();
        let dir = sys.lookup(b"/d", true).await.unwrap();
        assert_eq!(dir.class().unwrap(), class("RP_2GX"));
        let before = sys.lookup(b"/before", true).await.unwrap();
        assert_eq!((before.class().unwrap(), before.chunk_bytes()), (class("S1"), 4096));
    });
}
