//! Has the library's start-up code run before that of others: they may keep `stdout` as they
//! find it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rerun-if-changed=build.rs");
}
