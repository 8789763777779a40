//! Gives the shared object the name that programs linked with it record.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libazekura.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
